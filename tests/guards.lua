-- SPDX-License-Identifier: MIT
-- The guards: what in src stands against a failure that people met in programs like this one, and the one test
-- that fails when it is gone. scripts/guards takes each away and sees.
--
-- To add one: `about` is the failure; `guard` says what stands against it; `file` has the text `find` once, and with
-- `put` in its place the guard is gone; `test` is what ctest calls the test program, `name` the test in it. What is in
-- several places has further ones in `also`: { { file =, find =, put = }, ... }.
return {
  -- ---- command channel
  {
    about = "an unknown id is answered under the name of the command that games wait for",
    guard = "errors are one word behind `error`",
    file = "src/service/command.c",
    find = [[mr__connection_say(s, c, "error %s:%s%s%s", mr__command_name(r->command), name, colon,]],
    put = [[mr__connection_say(s, c, "%s %s%s%s", mr__command_name(r->command), name, colon,]],
    test = "e2e/connect",
    name = "an_unknown_oid_is_one_error_and_no_connect_line",
  },
  {
    about = "a client that never registered asks for a relay and waits for ever",
    guard = "whoever is not registered is told so",
    file = "src/service/join.c",
    find = "        mr__command_fail(s, c, MR_CODE_NOT_REGISTERED, \"\");\n",
    put = "        mr__command_abandon(s, c);\n",
    test = "unit/service/join",
    name = "errors_of_joins_come_in_their_order_and_never_as_a_connect_line",
  },

  -- ---- floods
  {
    about = "a hundred thousand relays end in one tick and the control thread is busy with nothing else",
    guard = "a thousand ends a call",
    file = "src/engine/expiry.c",
    find = "looks < LOOKS_PER_POLL && mr->ended_now < ENDS_PER_POLL",
    put = "looks < UINT32_MAX",
    test = "unit/engine/expiry",
    name = "a_hundred_thousand_that_are_due_at_once_end_a_thousand_a_call",
  },
  {
    about = "each of a thousand ends costs a system call a worker, to wake it",
    guard = "what a call issues goes to the workers together",
    file = "src/engine/poll.c",
    find = "    mr__control_gather(mr);\n",
    put = "",
    test = "unit/engine/expiry",
    name = "a_hundred_ends_reach_a_worker_together_so_that_it_is_woken_once",
  },
}
