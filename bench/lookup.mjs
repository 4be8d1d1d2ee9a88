// SPDX-License-Identifier: MIT
//
// The program of lookup.lua for node, bun and deno: chained sends from an unconnected socket, each
// started in the callback of the one before, with the lookup that node:dgram has by default.
// Arguments: host, sends, rounds, port. Prints the milliseconds of each round.
import { Buffer } from "node:buffer";
import dgram from "node:dgram";
import process from "node:process";

const [host, sendsText, roundsText, portText] = process.argv.slice(2);
const port = Number(portText);
const sends = Number(sendsText);
const data = Buffer.from("x".repeat(64));
const socket = dgram.createSocket("udp4");
let rounds = Number(roundsText);
let left = 0;
let start = 0;

function sent(error) {
  if (error) throw error;
  if (left === 0) {
    if (start > 0) console.log((performance.now() - start).toFixed(3));
    if (rounds === 0) return socket.close();
    rounds--;
    left = sends;
    start = performance.now();
  }
  left--;
  socket.send(data, port, host, sent);
}

socket.send(data, port, host, sent);
