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
}
