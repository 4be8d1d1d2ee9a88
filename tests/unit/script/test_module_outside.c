/* SPDX-License-Identifier: MIT */
/*
 * relay.read and relay.http as policies use them, with a host that is a table of this test.
 * One thread.
 */
#include "test.h"

#include "act.h"

static struct act a;

TEST(a_request_is_checked_before_it_goes_out)
{
    act_begin(&a, NULL);
    CHECK_STR(act(&a,
                  "local function bad(part, t) fails(part, relay.http, t) end\n"
                  "fails('relay.http: the argument is nil', relay.http)\n"
                  "bad(\"unknown key 'ulr'; did you mean url?\", { ulr = 'http://x' })\n"
                  "bad('relay.http: url is nil', {}) bad('url is 5', { url = 5 })\n"
                  "for _, u in ipairs { '', 'x', 'http://', 'ftp://x', 'http:///x', 'file:///x',\n"
                  "  'http://x y', 'http://x\\n', 'http://x\\0', '//x', ' http://x', "
                  "'http://' .. ('x'):rep(8200) } do\n"
                  "  bad('http:// or https://', { url = u }) end\n"
                  "local u = 'http://x/'\n"
                  "bad('as GET, POST or PUT', { url = u, method = 'GET / HTTP/1.1\\r\\nX' })\n"
                  "bad('as GET', { url = u, method = '' }) bad('as GET', { url = u, method = "
                  "'Connect' })\n"
                  "bad('method is 5', { url = u, method = 5 })\n"
                  "bad('headers is a text', { url = u, headers = 'x' })\n"
                  "bad('headers.a holds a control character', { url = u, headers = { a = "
                  "'x\\r\\ny: z' } })\n"
                  "bad('headers.a holds', { url = u, headers = { a = 'x\\0' } })\n"
                  "bad('is no token', { url = u, headers = { ['a b'] = 'x' } })\n"
                  "bad('is no token', { url = u, headers = { ['a:'] = 'x' } })\n"
                  "bad('is no token', { url = u, headers = { ['a\\r\\n'] = 'x' } })\n"
                  "bad('is no token', { url = u, headers = { [''] = 'x' } })\n"
                  "bad('a key that is a number', { url = u, headers = { 'x' } })\n"
                  "bad('headers.a is a table', { url = u, headers = { a = {} } })\n"
                  "bad('is made by the relay', { url = u, headers = { ['Content-Length'] = 5 } "
                  "})\n"
                  "bad('is made by the relay', { url = u, headers = { ['transfer-Encoding'] = "
                  "'chunked' } })\n"
                  "local many = {} for i = 1, 33 do many['h' .. i] = 1 end\n"
                  "bad('headers are more than 32', { url = u, headers = many })\n"
                  "bad('body and json are both', { url = u, body = '', json = {} })\n"
                  "bad('body is 5', { url = u, body = 5 })\n"
                  "bad('at most 1048576 bytes', { url = u, body = ('x'):rep(2 ^ 20) .. 'x' })\n"
                  "bad('cannot be written as JSON: value.f', { url = u, json = { f = same } })\n"
                  "bad('timeout is 0', { url = u, timeout = 0 })\n"
                  "bad('timeout is 61', { url = u, timeout = 61 })\n"
                  "bad('max_bytes is -1', { url = u, max_bytes = -1 })\n"
                  "bad('max_bytes is nan', { url = u, max_bytes = 0 / 0 })\n"
                  "bad('max_bytes is 16777217', { url = u, max_bytes = 2 ^ 24 + 1 })\n"
                  "local r, message, code = relay.http { url = u, json = { 1 }, headers = { A = "
                  "1 } }\n"
                  "same(r, nil) same(message, 'not available') same(code, 'unavailable')\n"
                  "fails('relay.read: path is nil', relay.read)\n"
                  "fails('path is a text of 0', relay.read, '')\n"
                  "fails('path is a text of 3 bytes', relay.read, 'a\\0b')\n"
                  "fails('at most 4096 bytes', relay.read, ('x'):rep(4097))\n"
                  "same(select(3, relay.read 'x'), 'unavailable')"),
              "admit");
    act_end(&a);
}

TEST_MAIN(TEST_CASE(a_request_is_checked_before_it_goes_out))
