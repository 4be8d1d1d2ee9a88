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
    about = "a client that joins an unknown id hears nothing and waits",
    guard = "a failed command is answered",
    file = "src/service/command.c",
    find = [[
    s->figures.errors[r->command][code]++;
    if (mr__settings_values(s->settings)->errors) {
        if (r->id_n > 0) {]],
    put = [[
    s->figures.errors[r->command][code]++;
    if (code != MR_CODE_UNKNOWN_OID) {
        if (r->id_n > 0) {]],
    test = "e2e/connect",
    name = "an_unknown_oid_is_one_error_and_no_connect_line",
  },
  {
    about = "a client that resets its connection leaves it behind, or ends the server",
    guard = "an error of a read ends that connection",
    file = "src/control/tcp.c",
    find = [[
        uv_read_stop(stream);
        doom_by_error(c, (int)n);
    } else if]],
    put = [[
        uv_read_stop(stream);
    } else if]],
    test = "e2e/command_channel",
    name = "a_reset_connection_disturbs_nobody",
  },
  {
    about = "a client that resets its connection in the middle of a line ends the server",
    guard = "what comes for a connection that is gone is for nobody",
    file = "src/service/connection.c",
    find = "if (!c || c->is_eof || c->is_refused || n == 0) {",
    put = "if (c && (c->is_eof || c->is_refused || n == 0)) {",
    test = "unit/service/command",
    name = "a_reset_in_the_middle_of_a_line_disturbs_nobody",
  },
  {
    about = "writing to a client that hung up ends the server",
    guard = "SIGPIPE is ignored",
    file = "src/server/server.c",
    find = "        sigaction(SIGPIPE, &ignored, NULL);",
    put = "        (void)ignored;",
    also = { { file = "src/cli/main.c", find = "    sigaction(SIGPIPE, &action, NULL);", put = "" } },
    test = "e2e/suspended",
    name = "a_player_who_hung_up_meanwhile_may_be_told_something",
  },
  {
    about = "a client that never registered asks for a relay and waits for ever",
    guard = "whoever is not registered is told so",
    file = "src/service/join.c",
    find = [[
        mr__command_fail(s, c, MR_CODE_NOT_REGISTERED, "");
]],
    put = [[
        mr__command_abandon(s, c);
]],
    test = "unit/service/join",
    name = "errors_of_joins_come_in_their_order_and_never_as_a_connect_line",
  },
  {
    about = "a player who registers again is still taken for his first registration",
    guard = "the latest registration of a connection is the caller",
    file = "src/service/session.c",
    find = "mr__list_push_front(&c->sessions, &p->at_connection);",
    put = "mr__list_push_back(&c->sessions, &p->at_connection);",
    test = "e2e/registration",
    name = "the_latest_registration_is_the_caller",
  },
  {
    about = "a command that comes in pieces is taken for several",
    guard = "what has no end of line yet waits for it",
    file = "src/service/connection.c",
    find = [[
    if (c->is_eof && n > 0) {
        consume(c, n);]],
    put = [[
    if (n > 0) {
        consume(c, n);]],
    test = "e2e/command_channel",
    name = "one_byte_per_segment_is_a_command_all_the_same",
  },
  {
    about = "a CR before the LF becomes part of the command",
    guard = "a CR before the end of a line is none of its bytes",
    file = "src/service/connection.c",
    find = [[        if (length > 0 && text[length - 1] == '\r') {]],
    put = "        if (length > 0 && text[length - 1] == 0) {",
    test = "e2e/command_channel",
    name = "a_line_ends_with_lf_or_crlf_and_no_cr_comes_back",
  },
  {
    about = "a NUL ends what a client said",
    guard = "lines are bytes with a length",
    file = "src/service/command.c",
    find = [[
    memcpy(line, "echo ", 5);
    if (n > 0) {]],
    put = [[
    memcpy(line, "echo ", 5);
    n = strnlen(data, n);
    if (n > 0) {]],
    test = "e2e/command_channel",
    name = "bytes_pass_as_they_are",
  },
  {
    about = "what was sent right before a half-close is not answered",
    guard = "at the end of input everything that came is answered first",
    file = "src/service/connection.c",
    find = [[
    if (!was_paused && !c->is_refused) {
        run_lines(s, c);
    }
    mr__turn_end(s);]],
    put = [[
    (void)was_paused;
    mr__connection_close(s, c);
    mr__turn_end(s);]],
    test = "e2e/command_channel",
    name = "an_unfinished_line_is_executed_at_half_close",
  },
  {
    about = "a client that half-closes is not told what it has waited for",
    guard = "a connection whose command waits stays until it is answered",
    file = "src/service/connection.c",
    find = "    } else if (!c->is_waiting && c->is_eof) {",
    put = "    } else if (c->is_eof) {",
    test = "e2e/command_channel",
    name = "relays_asked_for_right_before_a_half_close_are_told",
  },
  {
    about = "a second command overtakes or destroys the first",
    guard = "one command at a time, in order",
    file = "src/service/connection.c",
    find = "for (unsigned left = MR_COMMANDS_PER_TURN; !c->request.is_active && !c->is_closing; left--) {",
    put = "for (unsigned left = MR_COMMANDS_PER_TURN; !c->is_closing; left--) {",
    test = "unit/service/registration",
    name = "the_next_command_waits_for_the_answer_and_others_go_on",
  },
  {
    about = "a line without end fills the memory",
    guard = "a line that is too long is thrown away while it comes",
    file = "src/service/connection.c",
    find = [[
    if (is_too_long(text, n)) {
        consume(c, n);]],
    put = [[
    if (is_too_long(text, n) && c->is_eof) {
        consume(c, n);]],
    test = "e2e/command_channel",
    name = "a_line_without_end_costs_no_memory",
  },
  {
    about = "the end of a line that was too long is executed",
    guard = "it is skipped to its end",
    file = "src/service/connection.c",
    find = [[
            c->is_skipping = false;
            continue;]],
    put = "            c->is_skipping = false;",
    test = "unit/service/command",
    name = "the_end_of_a_line_that_is_too_long_is_no_command",
  },
  {
    about = "notices pile up for a client that never reads",
    guard = "its output is bounded and ends with it",
    file = "src/control/tcp.c",
    find = [[
    if (c->out.n + c->inflight.n > t->output_bytes) {
        doom(c, MR_CONN_OUTPUT);
        return;
    }
]],
    put = "",
    test = "e2e/threats",
    name = "notices_by_the_thousand_close_who_never_reads_and_nobody_else",
  },
  {
    about = "answers pile up for a client that never reads",
    guard = "its output is bounded and ends with it",
    file = "src/control/tcp.c",
    find = [[
    if (c->out.n + c->inflight.n > t->output_bytes) {
        doom(c, MR_CONN_OUTPUT);
        return;
    }
]],
    put = "",
    test = "unit/control/tcp",
    name = "a_client_that_never_reads_is_closed_when_its_output_is_too_much",
  },
  {
    about = "a player is closed for what he did not read, and no figure says so",
    guard = "what a cap ends is counted",
    file = "src/service/connection.c",
    find = "    s->figures.caps[MR_CAP_OUTPUT] += why == MR_CONN_OUTPUT;\n",
    put = "",
    test = "unit/service/caps",
    name = "who_is_closed_for_what_he_did_not_read_is_counted_and_who_leaves_is_not",
  },
  {
    about = "memory grows with every player who comes and goes",
    guard = "what an address has is counted, and goes with the last of it",
    file = "src/service/connection.c",
    find = [[
    mr__source_put(s, c->source);
    c->source = NULL;]],
    put = "    c->source = NULL;",
    test = "unit/service/registration",
    name = "register_and_close_leave_nothing_behind",
  },
  {
    about = "memory grows with every player who comes and goes, whatever the rest does",
    guard = "a session's texts go with it",
    file = "src/service/session.c",
    find = [[
    mr__tags_deinit(&p->meta);
    mr__free(p->oid);
    free_secret]],
    put = [[
    mr__tags_deinit(&p->meta);
    free_secret]],
    test = "e2e/registration",
    name = "registering_and_closing_leaves_nothing_behind",
  },
  {
    about = "one connection registers until the memory is full",
    guard = "sessions of a connection are capped",
    file = "src/service/registration.c",
    find = "    if (c->n_sessions >= mr__settings_values(s->settings)->max_sessions_per_connection) {",
    put = "    if (c->n_sessions >= 1000000) {",
    test = "unit/service/registration",
    name = "twenty_thousand_registrations_on_one_connection_take_no_more_than_sixteen",
  },
  {
    about = "memory grows with every address that was ever here",
    guard = "only so many are remembered",
    file = "src/service/known.c",
    find = "    if (++s->n_gone > MR_KNOWN_GONE_MAX) {",
    put = "    if (++s->n_gone == SIZE_MAX) {",
    test = "unit/service/registration",
    name = "only_so_many_who_were_here_are_remembered",
  },
  {
    about = "idle connections from one address keep everybody out",
    guard = "connections of an address are capped",
    file = "src/service/source.c",
    find = "return source->connections >= mr__settings_values(s->settings)->max_connections_per_address &&",
    put = "return source->connections >= 1000000 &&",
    test = "e2e/threats",
    name = "a_thousand_idle_connections_from_one_address_keep_nobody_out",
  },
  {
    about = "connections that drip a byte now and then keep everybody out",
    guard = "connections of an address are capped",
    file = "src/service/source.c",
    find = "return source->connections >= mr__settings_values(s->settings)->max_connections_per_address &&",
    put = "return source->connections >= 1000000 &&",
    test = "unit/service/caps",
    name = "a_thousand_connections_that_drip_keep_nobody_from_another_address_out",
  },
  {
    about = "whoever is over the cap holds places by being told so",
    guard = "only so many a second are told",
    file = "src/service/source.c",
    find = "return mr__pace_take(&source->answers_full_ns, pace, s->now_ns);",
    put = "return mr__pace_take(&source->answers_full_ns, pace, s->now_ns) || true;",
    test = "unit/service/caps",
    name = "whoever_opens_thousands_over_the_cap_is_not_answered_for_ever",
  },
  {
    about = "two players get one id when ids are few",
    guard = "an id is drawn again while somebody has it",
    file = "src/service/draw.c",
    find = [[
        is_found = !space->is_taken(s, id, n);
    }
    if (!is_found && !*used_up) {]],
    put = [[
        is_found = true;
    }
    if (!is_found && !*used_up) {]],
    test = "e2e/registration",
    name = "an_id_space_that_is_used_up_answers_no_ids",
  },
  {
    about = "ids that were used up once are so for ever",
    guard = "an end of a session is a new beginning",
    file = "src/service/session.c",
    find = [[
    s->oids_used_up = s->pids_used_up = false;
]],
    put = "",
    test = "unit/service/registration",
    name = "a_space_of_two_ids_is_used_up_exactly_and_comes_back",
  },
  {
    about = "every junk command makes the page of metrics longer",
    guard = "labels come from closed sets",
    file = "src/service/figures.c",
    find = [[
    for (enum command c = 0; c <= MR_COMMAND_OTHER; c++) {
        struct metric_label l = label("command", mr__command_name(c));
        uint64_t n = 0;]],
    put = [[
    for (uint64_t i = 0; i < s->figures.durations[MR_COMMAND_OTHER].counts[0]; i++) {
        const struct metric_label word = label("command", "a word of theirs");
        mr__metrics_uint(m, &word, 1, 1);
    }
    for (enum command c = 0; c <= MR_COMMAND_OTHER; c++) {
        struct metric_label l = label("command", mr__command_name(c));
        uint64_t n = 0;]],
    test = "e2e/metrics",
    name = "junk_commands_do_not_grow_the_page",
  },
  {
    about = "relay port 0 is served somewhere",
    guard = "0 is no port",
    file = "src/service/parse.c",
    find = "        if (sign != '+') {",
    put = "        if (false) {",
    test = "unit/service/parse",
    name = "ports_that_cannot_be_are_an_error",
  },
  {
    about = "port 65536 is served as port 0",
    guard = "a port has its bounds",
    file = "src/service/parse.c",
    find = [[
    if (rc == -ERANGE || first > 65535 || last > 65535) {
        *why]],
    put = [[
    if (rc == -ERANGE) {
        *why]],
    test = "unit/service/parse",
    name = "ports_that_cannot_be_are_an_error",
  },
  {
    about = "a reversed range is a range without ports",
    guard = "a reversed range is refused",
    file = "src/service/parse.c",
    find = "    if (last < first) {",
    put = "    if (false) {",
    test = "unit/service/parse",
    name = "ports_that_cannot_be_are_an_error",
  },
  {
    about = "`1kb junk` and `10kib` are read as something",
    guard = "a unit is a whole word",
    file = "src/service/parse.c",
    find = "        if (strlen(units[i].name) == n && strncasecmp(units[i].name, text, n) == 0) {",
    put = "        if (strncasecmp(units[i].name, text, strlen(units[i].name)) == 0) {",
    test = "unit/service/parse",
    name = "a_size_that_is_not_exactly_that_is_an_error",
  },
  {
    about = "`flase` is read as something",
    guard = "a boolean is one of eight words",
    file = "src/service/parse.c",
    find = [[
    *why = "expected true, false, yes, no, on, off, 1 or 0";
    return -EINVAL;]],
    put = [[
    *out = false;
    (void)why;
    return 0;]],
    test = "unit/service/parse",
    name = "eight_words_are_booleans_in_any_case_and_nothing_else_is",
  },
  {
    about = "an empty number is 0",
    guard = "a number has digits",
    file = "src/service/parse.c",
    find = [[
    if (digits == 0) {
        return -EINVAL;]],
    put = [[
    if (digits == 0 && n > 0) {
        return -EINVAL;]],
    test = "unit/service/parse",
    name = "a_size_that_is_not_exactly_that_is_an_error",
  },
  {
    about = "a log level that does not exist silences the log, or shows all of it",
    guard = "a level is one of seven words",
    file = "src/service/settings_table.c",
    find = "    if (!mr__log_level_parse(text, n, field)) {",
    put = "    if (!mr__log_level_parse(text, n, field) && false) {",
    test = "e2e/settings",
    name = "a_wrong_value_stops_the_start_and_is_named: loglevel",
  },
  {
    about = "an empty port is port 0",
    guard = "a whole number has digits",
    file = "src/service/settings_table.c",
    find = "    if (n == 0 || n > 18) {",
    put = "    if (n > 18) {",
    test = "unit/service/settings",
    name = "a_bad_value_is_named_with_key_place_and_what_is_expected_and_changes_nothing",
  },
  {
    about = "the command channel's port 65536 is port 0",
    guard = "a port has its bounds",
    file = "src/service/settings_table.c",
    find = "    if (!parse_count(text, n, &v) || v > 65535) {",
    put = "    if (!parse_count(text, n, &v)) {",
    test = "unit/service/settings",
    name = "a_bad_value_is_named_with_key_place_and_what_is_expected_and_changes_nothing",
  },
  {
    about = "a start is refused and nobody knows for which setting",
    guard = "the key and the value are named",
    file = "src/service/settings.c",
    find = [["%s = %s (%s): %s", best->key,]],
    put = [["%.0s%.0s(%s): %s", best->key,]],
    test = "e2e/settings",
    name = "a_wrong_value_is_named_with_its_place",
  },
  {
    about = "a wrong setting is warned of, and it serves with another value",
    guard = "a wrong setting stops the start",
    file = "src/server/startup.c",
    find = [[    return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, -EINVAL, "%s", first ? first : "?");]],
    put = "    return 0;",
    test = "e2e/settings",
    name = "a_wrong_value_is_named_with_its_place",
  },
  {
    about = "one relay port that another program has stops the start",
    guard = "a port that cannot be opened is left out",
    file = "src/service/pool.c",
    find = [[
        note_failure(s, local, rc, report);
        rc = 0;]],
    put = "        note_failure(s, local, rc, report);",
    test = "e2e/settings",
    name = "a_relay_port_in_use_is_left_out_with_a_warning",
  },
  {
    about = "a relay port is left out and nobody is told",
    guard = "a port that is left out is warned of",
    file = "src/server/banner.c",
    find = [[
    if (report->opened < report->asked) {
        char at]],
    put = [[
    if (false) {
        char at]],
    test = "e2e/settings",
    name = "a_relay_port_in_use_is_left_out_with_a_warning",
  },
  {
    about = "it serves without a single relay port",
    guard = "without any port there is no start",
    file = "src/service/pool.c",
    find = "    if (rc == 0 && report->opened + staying == 0) {",
    put = "    if (false) {",
    test = "e2e/settings",
    name = "a_range_that_is_all_in_use_stops_the_start",
  },

  -- ---- registrar
  {
    about = "the ICMP error that one gone sender provokes stops the socket for all",
    guard = "errors of the past are not reported on a socket of many",
    file = "src/io/socket.c",
    find = "    const int off = 0;",
    put = "    const int off = 1;",
    test = "e2e/registrar",
    name = "replies_that_bounce_disturb_nothing",
  },
  {
    about = "the ICMP error that one gone peer provokes costs another one's datagrams",
    guard = "errors of the past are not reported on a socket of many",
    file = "src/io/socket.c",
    find = "    const int off = 0;",
    put = "    const int off = 1;",
    test = "unit/io/kernel",
    name = "an_icmp_error_of_one_peer_disturbs_nobody",
  },
  {
    about = "a datagram forged from the registrar's own address is answered for ever",
    guard = "nobody is registered, or answered, at an address of ours",
    file = "src/service/peer.c",
    find = "    if (mr_is_own_address(s->mr, from)) {",
    put = "    if (false) {",
    test = "e2e/registrar",
    name = "a_datagram_forged_from_our_own_address_is_dropped",
  },
  {
    about = "a datagram forged from one relay port to another goes round",
    guard = "what comes from an address of ours is dropped",
    file = "src/core/plane.c",
    find = "    if (out->charged == m.nobody && mr__own_contains(&p->own, &rx->from)) {",
    put = "    if (false) {",
    test = "unit/core/plane",
    name = "our_own_address_is_a_drop_and_no_miss_that_a_policy_could_admit",
  },
  {
    about = "a relay's peer is one of our own ports",
    guard = "an address of ours is nobody's peer",
    file = "src/core/pair.c",
    find = "    return mr__own_contains(&t->plane.own, addr) ? -EADDRNOTAVAIL : 0;",
    put = [[
    (void)t;
    return 0;]],
    test = "unit/core/pair",
    name = "addresses_that_nobody_should_be_sent_to_are_refused_where_they_enter",
  },
  {
    about = "a PID with something behind it passes for a PID",
    guard = "a PID is all of a datagram's bytes",
    file = "src/service/registrar.c",
    find = "mr__session_by_pid(s, data, n) : NULL;",
    put = "mr__session_by_pid(s, data, n > 128 ? 128 : n) : NULL;",
    test = "e2e/registrar",
    name = "what_differs_from_a_pid_in_one_byte_is_none",
  },
  {
    about = "a PID in other letters passes for a PID",
    guard = "a PID is compared byte for byte",
    file = "src/service/session.c",
    find = [[
    uint64_t hash = mr__service_hash(s, pid, n);
]],
    put = [[
    for (struct list *l = s->all_sessions.next; l != &s->all_sessions; l = l->next) {
        struct session *p = MR_CONTAINER(l, struct session, at_all);
        if (p->pid_n == n && strncasecmp(p->pid, pid, n) == 0) {
            return p;
        }
    }
    uint64_t hash = mr__service_hash(s, pid, n);
]],
    test = "e2e/registrar",
    name = "what_differs_from_a_pid_in_one_byte_is_none",
  },
  {
    about = "a PID works on when its connection is closed",
    guard = "a PID ends with its session",
    file = "src/service/session.c",
    find = [[
    mr__table_remove(&s->pids, &p->by_pid);
]],
    put = "",
    test = "e2e/registrar",
    name = "the_pid_of_a_closed_connection_is_none",
  },
  {
    about = "a player whose address changes loses his running game",
    guard = "his relay goes with him and keeps its port",
    file = "src/service/registrar.c",
    find = "    if (seat && move_relay(s, seat, p, from, local) < 0) {",
    put = "    if (false) {",
    test = "e2e/registrar",
    name = "a_moved_player_keeps_his_relay_and_its_port",
  },
  {
    about = "connect tells where a player was",
    guard = "his latest address is the one that others are told",
    file = "src/service/session.c",
    find = [[
    p->addr = *addr;
    p->local = *local;]],
    put = [[
    if (p->addressed == 0) {
        p->addr = *addr;
    }
    p->local = *local;]],
    test = "e2e/registrar",
    name = "a_moved_player_keeps_his_relay_and_its_port",
  },
  {
    about = "OK is said before datagrams from the new address pass",
    guard = "a move is answered when it is in force",
    file = "src/service/registrar.c",
    find = "    if (mr_in_force(s->mr) >= mr_seq(s->mr)) {",
    put = "    if (true) {",
    test = "unit/service/registrar",
    name = "a_move_is_answered_only_when_it_is_in_force",
  },
  {
    about = "a PID is in the log",
    guard = "records are of public ids",
    file = "src/service/registration.c",
    find = [[LOG_UINT("session", p->id), LOG_STRN("oid", p->oid, p->oid_n),]],
    put = [[LOG_UINT("session", p->id), LOG_STRN("oid", p->pid, p->pid_n),]],
    test = "e2e/log",
    name = "a_pid_is_in_no_log_at_any_level",
  },
  {
    about = "a PID is on the page of metrics",
    guard = "labels come from closed sets",
    file = "src/service/figures.c",
    find = [[
        struct metric_label l = label("command", mr__command_name(c));
        uint64_t n = 0;]],
    put = [[
        struct metric_label l = label(
            "command", c == MR_COMMAND_OTHER && !mr__list_is_empty(&s->all_sessions)
                           ? MR_CONTAINER(s->all_sessions.next, struct session, at_all)->pid
                           : mr__command_name(c));
        uint64_t n = 0;]],
    test = "e2e/metrics",
    name = "nothing_of_a_player_is_on_the_page",
  },
  {
    about = "a PID is shown to operators or scripts",
    guard = "what others see of a session has no PID",
    file = "src/service/session.c",
    find = [[
        .tags = mr__tags_map(&p->tags),
        .meta]],
    put = [[
        .tags = {&(struct hook_pair){{"pid", 3}, {p->pid, p->pid_n}}, 1},
        .meta]],
    test = "e2e/control",
    name = "it_shows_what_is_there_but_no_secret",
  },

  -- ---- strangers
  {
    about = "a stranger whom a policy admits reaches nobody",
    guard = "his relay is a pair with the one at the port that he knocked at",
    file = "src/service/knock.c",
    find = "    if (mr_pair(s->mr, seat->relay, target->relay) < 0) {",
    put = "    if (false) {",
    test = "e2e/dynamic",
    name = "three_strangers_are_relayed_within_the_range",
  },
  {
    about = "what a stranger sends leaves from no port of the range that is his",
    guard = "it leaves from his relay's own port",
    file = "src/core/pair.c",
    find = "                         .egress = at[relay].egress,",
    put = "                         .egress = partner,",
    test = "e2e/dynamic",
    name = "three_strangers_are_relayed_within_the_range",
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
  {
    about = "junk at the registrar is answered by more bytes than it has",
    guard = "only what has a PID's length is answered",
    file = "src/service/registrar.c",
    find = "    if (n != mr__settings_values(s->settings)->pid_length || n < MR_PID_LENGTH_ANSWERED_MIN) {",
    put = "    if (n > PID_LENGTH_MAX * 8) {",
    test = "e2e/registrar",
    name = "a_thousand_sources_of_junk_get_less_than_they_send",
  },
  {
    about = "each source of junk at the registrar is remembered, and memory grows with a flood of them",
    guard = "budgets are a table of fixed size",
    file = "src/service/registrar.c",
    find = "    return mr__source_is_exempt(s, from) ||\n",
    put = "    (void)!mr__alloc(1, 64);\n    return mr__source_is_exempt(s, from) ||\n",
    test = "unit/service/registrar",
    name = "a_flood_from_a_thousand_sources_takes_no_memory",
  },
  {
    about = "one relay that floods takes the global limit from ten who play",
    guard = "whoever is below his share of the global limit passes",
    file = "src/core/plane.c",
    find = "    return mr__limit_share_fits(&s->share, now_ns) ? GLOBAL_SHARE : GLOBAL_REFUSED;",
    put = "    return GLOBAL_REFUSED;",
    test = "unit/core/plane",
    name = "a_flooding_relay_does_not_push_others_below_their_share_of_the_global_limit",
  },
  {
    about = "one relay that floods takes the global limit from ten who play, over real sockets",
    guard = "whoever is below his share of the global limit passes",
    file = "src/core/plane.c",
    find = "    return mr__limit_share_fits(&s->share, now_ns) ? GLOBAL_SHARE : GLOBAL_REFUSED;",
    put = "    return GLOBAL_REFUSED;",
    test = "e2e/limits",
    name = "ten_who_play_keep_their_share_while_one_floods",
  },
  {
    about = "each of a million forged sources is a question to the control thread",
    guard = "questions about strangers have a budget",
    file = "src/engine/pass.c",
    find = "    if (!mr__limit_take(&w->event_tat_ns, rate, w->now_ns, 1)) {",
    put = "    (void)rate;\n    if (false) {",
    test = "unit/engine/flow",
    name = "a_flood_of_forged_sources_takes_no_memory_and_nothing_from_a_pair",
  },
  {
    about = "what forged sources sent takes memory for each of them",
    guard = "what is held lies in a pool of fixed size",
    file = "src/engine/hold.c",
    find = "    i = write_blocks(h, data, size);\n",
    put = "    (void)!mr__alloc(1, size + 1);\n    i = write_blocks(h, data, size);\n",
    also = { { file = "src/engine/hold.c", find = "#include <errno.h>\n",
      put = "#include \"base/alloc.h\"\n#include <errno.h>\n" } },
    test = "unit/engine/flow",
    name = "a_flood_of_forged_sources_takes_no_memory_and_nothing_from_a_pair",
  },
  {
    about = "a page of figures asks the kernel about every port of tens of thousands, and all else waits",
    guard = "so many ports a page",
    file = "src/engine/port.c",
    find = "mr->unused_port < DROPS_PER_CALL ? mr->unused_port : DROPS_PER_CALL;",
    put = "mr->unused_port;",
    test = "unit/engine/port",
    name = "asking_for_what_buffers_lost_looks_at_so_many_ports_a_call_and_at_all_in_turn",
  },

  -- ---- relaying
  {
    about = "strangers take every port, and players get none",
    guard = "the share of the ports that strangers get",
    file = "src/service/dynamic.c",
    find = "           (s->pool.n_kind[MR_SEAT_DYNAMIC] + s->pool.n_kind[MR_SEAT_TARGET] + 1) * 100 >\n"
      .. "               s->pool.n * v->dynamic_share ||\n",
    put = "",
    test = "unit/service/knock",
    name = "dynamic_relays_are_capped_by_share_source_and_target",
  },
  {
    about = "strangers take the last ports, and players get none",
    guard = "the last two free ports are for players",
    file = "src/service/dynamic.c",
    find = "mr__pool_free(s) <= FREE_PORTS_FOR_PLAYERS",
    put = "mr__pool_free(s) < 1",
    test = "unit/service/knock",
    name = "twenty_strangers_leave_ports_for_players",
  },
  {
    about = "strangers are capped where they knock, and take the ports by flows to a server",
    guard = "the caps at the making of a flow",
    file = "src/service/target.c",
    find = "(mr__unwelcome_has(s, &k->from) || mr__dynamic_is_over(s, &k->from, NULL))",
    put = "mr__unwelcome_has(s, &k->from)",
    test = "unit/service/target",
    name = "caps_bind_flows_to_targets_by_client_and_share_but_not_by_server",
  },
  {
    about = "asking for a relay twice makes two more of them",
    guard = "the look for the relay that a player has",
    file = "src/service/seat.c",
    find = "    if (p->addr.family == 0) {\n"
      .. "        return NULL;\n"
      .. "    }\n"
      .. "    if (p->relay &&",
    put = "    if (p->addr.family != 255) {\n"
      .. "        return NULL;\n"
      .. "    }\n"
      .. "    if (p->relay &&",
    test = "unit/service/join",
    name = "connect_relay_twice_gives_the_same_two_ports",
  },
  {
    about = "whoever asks before the first answer gets relays of his own",
    guard = "one creation an address at a time",
    file = "src/service/join.c",
    find = "if (r->sides[i].is_needed && !mr__making_is_free(s, &r->sides[i].addr, MR_NO_ENTRY)) {",
    put = "if (r->n_sides == 0) {",
    test = "unit/service/join",
    name = "whoever_asks_meanwhile_gets_the_same_result",
  },
  {
    about = "a host behind a symmetric NAT becomes a stranger, and both sides talk past each other",
    guard = "the question whose other mapping a stranger is",
    file = "src/service/knock.c",
    find = "mr_relay_id latched = mr__latch_try(s, &k->from, k->port);",
    put = "mr_relay_id latched = 0;",
    test = "e2e/latch",
    name = "a_host_who_speaks_from_another_port_is_the_host",
  },
  {
    about = "five of sixteen pairs of NATs never connect",
    guard = "the question whose other mapping a stranger is",
    file = "src/service/knock.c",
    find = "mr_relay_id latched = mr__latch_try(s, &k->from, k->port);",
    put = "mr_relay_id latched = 0;",
    test = "unit/service/nat",
    name = "all_sixteen_pairs_of_classic_nats_connect_without_any_policy",
  },
  {
    about = "a host is heard from his other mapping and answered at the first one",
    guard = "the way to a leg that is latched",
    file = "src/core/pair.c",
    find = ".to = to ? to->seen : at[partner].addr,",
    put = ".to = at[partner].addr,",
    test = "unit/engine/latch",
    name = "a_latched_source_speaks_as_its_relay_and_is_sent_what_is_for_it",
  },
  {
    about = "long after they were connected a stranger from a player's IP is taken for him",
    guard = "the window",
    file = "src/service/latch.c",
    find = "return s->now_ns - l->since_ns >= mr__settings_values(s->settings)->latch_window_ns;",
    put = "return s->now_ns < l->since_ns;",
    test = "unit/service/latch",
    name = "a_player_is_recognized_within_the_window_and_not_after_it",
  },
  {
    about = "without a window somebody is recognized",
    guard = "no window, no latch",
    file = "src/service/latch.c",
    find = "if (mr__settings_values(s->settings)->latch_window_ns == 0 || a == b) {",
    put = "if (a == b) {",
    test = "unit/service/latch",
    name = "without_a_window_nobody_is_recognized",
    also = {
      { find = "return s->now_ns - l->since_ns >= mr__settings_values(s->settings)->latch_window_ns;",
        put = "return s->now_ns < l->since_ns;" },
    },
  },
  {
    about = "a second stranger takes the place of the one who was recognized",
    guard = "one latch a pair and side",
    file = "src/core/pair.c",
    find = "if (*state_of(t, element) != LEG_FRESH || latch_of(t, element))",
    put = "if (*state_of(t, element) != LEG_FRESH)",
    test = "unit/engine/latch",
    name = "a_leg_whose_peer_has_spoken_is_never_latched_and_its_partner_may_be",
  },
  {
    about = "a player in the middle of his game is replaced by a stranger from his IP",
    guard = "whoever has spoken for himself is not recognized elsewhere",
    file = "src/core/pair.c",
    find = "if (*state_of(t, element) != LEG_FRESH || latch_of(t, element))",
    put = "if (latch_of(t, element))",
    test = "unit/service/latch",
    name = "a_stranger_is_never_a_player_whose_pair_has_exchanged_datagrams",
  },
  {
    about = "a player who speaks from where he registered is sent to where he was guessed to be",
    guard = "his first words undo a latch",
    file = "src/core/pair.c",
    find = "    *state_of(t, element) = LEG_SPOKEN;\n"
      .. "    unlatch(t, element);\n",
    put = "    *state_of(t, element) = LEG_SPOKEN;\n",
    test = "unit/service/latch",
    name = "a_player_who_speaks_for_himself_undoes_his_latch_and_gets_no_other",
  },
  {
    about = "a player who registers anew is sent to where he was guessed to be",
    guard = "a move undoes a latch",
    file = "src/core/pair.c",
    find = "         e = next_pair(t, e))\n"
      .. "        unlatch(t, e);\n",
    put = "         e = next_pair(t, e))\n"
      .. "        continue;\n",
    test = "unit/engine/latch",
    name = "a_move_undoes_the_latches_of_who_moved_and_not_his_partners",
  },
  {
    about = "a latch reaches whoever has the port next",
    guard = "a pair's latches end with it",
    file = "src/core/pair.c",
    find = "    unlatch_both(t, entry);\n"
      .. "    pair_remove_slot",
    put = "    pair_remove_slot",
    test = "unit/service/latch",
    name = "a_latch_ends_with_its_relays_and_reaches_nobody_who_has_the_port_later",
  },
  {
    about = "a player is taken for another one behind the same address",
    guard = "whoever has a name of his own is no latch",
    file = "src/service/latch.c",
    find = "|| mr__session_at(s, from) || mr__unwelcome_has(s, from)) {",
    put = ") {",
    test = "unit/service/latch",
    name = "nobody_is_taken_for_a_player_who_has_a_name_of_his_own_or_is_not_let_in",
  },
  {
    about = "a latch points at a service, a group or ourselves",
    guard = "what no relay may have is no latch either",
    file = "src/core/pair.c",
    find = "    int rc = check_peer(t, seen);\n"
      .. "\n"
      .. "    if (rc < 0)\n"
      .. "        return rc;\n"
      .. "    if (mr__relays_find(&t->plane.relays, seen)",
    put = "    if (mr__relays_find(&t->plane.relays, seen)",
    test = "unit/engine/latch",
    name = "an_address_that_no_relay_may_have_is_no_latch_either",
  },
  {
    about = "of two players behind one address the wrong one is recognized",
    guard = "the newest pair is meant",
    file = "src/service/latch.c",
    find = "side->latch->order > best->latch->order",
    put = "side->latch->order < best->latch->order",
    test = "unit/service/latch",
    name = "of_several_players_on_one_ip_the_one_connected_last_is_meant",
  },
  {
    about = "a freed port is the next game's at once, and a stale player plays in it",
    guard = "the rest of a freed port",
    file = "src/service/pool.c",
    find = "    if (!was_in_use) {\n",
    put = "    if (was_in_use || !was_in_use) {\n",
    test = "unit/service/join",
    name = "a_stale_peer_does_not_reach_who_plays_next",
  },
  {
    about = "a freed port rests for less time than a stale player sends",
    guard = "two timeouts of rest",
    file = "src/service/pool.c",
    find = "rest_ns = 2 * mr__settings_values(s->settings)->udp_relay_timeout_ns;",
    put = "rest_ns = mr__settings_values(s->settings)->udp_relay_timeout_ns;",
    test = "unit/service/join",
    name = "a_stale_peer_does_not_reach_who_plays_next",
  },
  {
    about = "a relay that is gone is still sent to",
    guard = "its pairs end with a relay",
    file = "src/core/pair.c",
    find = "    while (r->pairs != MR__NONE)\n"
      .. "        remove_pair(t, r->pairs >> 1);\n",
    put = "",
    test = "unit/core/pair",
    name = "two_relays_of_one_address_both_receive_and_the_newest_speaks_until_it_is_freed",
  },
  {
    about = "RTPbleed: whoever sends to a port of a pair is relayed as its peer",
    guard = "an unknown sender is nobody",
    file = "src/core/plane.c",
    find = "    if (out->charged == m.nobody || (port->flags & MR__RELAY_LINKED))\n"
      .. "        return MR_VERDICT_UNKNOWN_SENDER;\n"
      .. "\n"
      .. "    sender = &p->relays.at[out->charged];\n"
      .. "    /* A",
    put = "    if (out->charged == m.nobody)\n"
      .. "        out->charged = rx->port;\n"
      .. "\n"
      .. "    sender = &p->relays.at[out->charged];\n"
      .. "    /* A",
    test = "e2e/relay",
    name = "a_stranger_at_both_ports_of_a_pair_reaches_nobody",
    also = {
      { find = "        !(out->charged == rx->port && (sender->flags & MR__RELAY_MANUAL) &&",
        put = "        !(out->charged == rx->port &&" },
    },
  },
  {
    about = "anybody gets a relay by sending to a port",
    guard = "the shipped policy admits those whom we know",
    file = "lua/policies/dynamic.lua",
    find = "(anyone or ev.known)",
    put = "(anyone or ev)",
    test = "e2e/dynamic",
    name = "a_stranger_is_not_admitted_by_default",
  },
  {
    about = "a pair that was asked for again ends as if nobody had",
    guard = "connect-relay counts as use",
    file = "src/service/join.c",
    find = "if (seats[i] && mr_relay_restart(s->mr, seats[i]->relay) < 0) {",
    put = "if (seats[i] && seats[i]->relay == 0) {",
    test = "unit/service/join",
    name = "a_new_connect_relay_keeps_a_pair_alive",
  },
  {
    about = "while one side only sends, the other one's relay ends",
    guard = "what is forwarded keeps its target alive",
    file = "src/core/plane.c",
    find = "    if (v == MR_VERDICT_FORWARD)\n"
      .. "        touch(to, m.now_ns);\n"
      .. "    return v == RARE",
    put = "    return v == RARE",
    test = "unit/core/plane",
    name = "a_forwarded_datagram_keeps_both_ends_alive_and_a_refused_one_its_sender",
  },
  {
    about = "while one side only sends a datagram now and then, the other one's relay ends",
    guard = "what is forwarded by the rare way keeps its target alive, too",
    file = "src/core/plane.c",
    find = "        touch(to, m.now_ns);\n"
      .. "        if (is_doubted)",
    put = "        if (is_doubted)",
    test = "unit/service/join",
    name = "one_way_traffic_now_and_then_keeps_both_ends_alive",
  },
  {
    about = "of two relays that need a port each the first is kept when there is one",
    guard = "both or none",
    file = "src/service/join.c",
    find = "                mr__seat_undo(s, seats[i]);\n"
      .. "            }\n"
      .. "        }\n"
      .. "        refuse(",
    put = "                seats[i] = NULL;\n"
      .. "            }\n"
      .. "        }\n"
      .. "        refuse(",
    test = "unit/service/join",
    name = "without_two_ports_neither_is_kept",
  },
  {
    about = "large datagrams are cut or lost",
    guard = "room for the largest",
    file = "src/io/transport.h",
    find = "    RX_SLOT = 65536, /*",
    put = "    RX_SLOT = 2048, /*",
    test = "e2e/relay",
    name = "payloads_of_every_size_arrive_byte_for_byte",
  },
  {
    about = "of mixed sizes some are cut at another's",
    guard = "a message that the kernel cuts is of one size",
    file = "src/io/send.c",
    find = "return next <= size && next != 0 &&",
    put = "return next != 0 &&",
    test = "e2e/relay",
    name = "sizes_mixed_in_one_burst_arrive_byte_for_byte_and_in_order",
    also = {
      { find = "count < tx->run_max && last == size &&",
        put = "count < tx->run_max && last &&" },
    },
  },
  {
    about = "a datagram that was cut is relayed as if it were whole",
    guard = "the verdict on cut datagrams",
    file = "src/core/plane.c",
    find = "if (rx->flags & MR__RX_TRUNCATED) {",
    put = "if (rx->flags & 128u) {",
    test = "unit/core/plane",
    name = "a_truncated_datagram_is_dropped_before_it_costs_anything",
  },
  {
    about = "a datagram at a free port is counted as something else",
    guard = "the verdict on free ports",
    file = "src/core/plane.c",
    find = "    if (!port->generation)\n"
      .. "        return MR_VERDICT_UNKNOWN_TARGET;\n",
    put = "",
    test = "e2e/relay",
    name = "a_free_port_is_silent_and_counted",
  },
  {
    about = "a free port answers with an ICMP error, which says who plays",
    guard = "a free port stays bound",
    file = "src/service/pool.c",
    find = "    seat->freed_ns = s->now_ns;\n",
    put = "    seat->freed_ns = s->now_ns;\n"
      .. "    mr_port_close(s->mr, seat->port);\n",
    test = "e2e/relay",
    name = "a_port_that_was_freed_is_as_silent",
  },
  {
    about = "an error of one peer ends the reading of a port",
    guard = "an error is over with its read",
    file = "src/engine/worker.c",
    find = "        failed += w->config.transport->receive(&w->rx, source, w->batch) < 0;\n",
    put = "        if (w->config.transport->receive(&w->rx, source, w->batch) < 0) {\n"
      .. "            mr__poller_remove(&w->poller, source->fd);\n"
      .. "            failed++;\n"
      .. "        }\n",
    test = "e2e/threats",
    name = "a_system_call_that_fails_once_costs_what_it_was_for",
  },
  {
    about = "an IPv4 player of a dual-stack port is ::ffff: in keys, logs and answers",
    guard = "the v4 form of what a socket reads",
    file = "src/io/socket.c",
    find = "    out->family = 6;\n"
      .. "    mr_addr_canonicalize(out);\n",
    put = "    out->family = 6;\n",
    test = "unit/io/socket",
    name = "a_dual_stack_socket_shows_ipv4_peers_in_their_own_form",
  },
  {
    about = "a mapped address is registered beside its IPv4 form",
    guard = "the v4 form at the registrar",
    file = "src/service/registrar.c",
    find = "    mr_addr_canonicalize(&source);\n",
    put = "",
    test = "unit/service/registrar",
    name = "a_mapped_address_is_an_ipv4_address",
  },
  {
    about = "the unspecified address, a group or everybody is relayed to",
    guard = "such addresses, where a relay gets its peer",
    file = "src/core/pair.c",
    find = "if (!addr->port || (mr_addr_classify(addr) & never))",
    put = "if (!addr->port)",
    test = "unit/core/pair",
    name = "addresses_that_nobody_should_be_sent_to_are_refused_where_they_enter",
  },
  {
    about = "a port of ours is relayed to, and datagrams go round",
    guard = "our own addresses, where a relay gets its peer",
    file = "src/core/pair.c",
    find = "return mr__own_contains(&t->plane.own, addr) ? -EADDRNOTAVAIL : 0;",
    put = "return 0;",
    test = "unit/core/pair",
    name = "addresses_that_nobody_should_be_sent_to_are_refused_where_they_enter",
  },
  {
    about = "a player is registered at an address that reaches nobody or many",
    guard = "such addresses at the registrar",
    file = "src/service/peer.c",
    find = "if ((mr_addr_classify(from) & NOBODY) || from->port",
    put = "if (from->port",
    test = "unit/service/peers",
    name = "nobody_is_registered_at_an_address_that_is_no_players",
  },
  {
    about = "a flow to a server goes to an address that reaches nobody or many",
    guard = "such addresses as targets",
    file = "src/service/target.c",
    find = "if ((mr_addr_classify(dest) & never) || mr__nets_contain(&s->deny_peers, dest)) {",
    put = "if (mr__nets_contain(&s->deny_peers, dest)) {",
    test = "unit/service/target",
    name = "a_hostile_target_gets_nothing_and_the_log_says_why",
  },
  {
    about = "a flow to a server goes to a port of ours",
    guard = "our own addresses as targets",
    file = "src/service/target.c",
    find = "    if (mr_is_own_address(s->mr, dest)) {\n",
    put = "    if (dest->family == 0) {\n",
    test = "e2e/threats",
    name = "no_flow_goes_to_our_ports_seen_from_outside",
  },

  -- ---- limits
  {
    about = "64 kB at once end the process, or are dropped",
    guard = "the burst is a second's worth",
    file = "src/core/limit.c",
    find = "    if (interval_ns < least_ns)\n"
      .. "        interval_ns = least_ns;\n",
    put = "",
    test = "e2e/limits",
    name = "a_burst_of_64_kb_passes_at_the_default_limits",
  },
  {
    about = "one sender takes the bandwidth of all",
    guard = "the individual bandwidth",
    file = "src/core/plane.c",
    find = "        if (!mr__limit_is_within(next, m.now_ns, rate))\n"
      .. "            return MR_VERDICT_BANDWIDTH;\n"
      .. "    }\n"
      .. "    if (m.has_global",
    put = "    }\n"
      .. "    if (m.has_global",
    test = "e2e/limits",
    name = "what_is_above_the_burst_is_dropped_as_bandwidth",
  },
  {
    about = "whoever paused may send all that he has not sent",
    guard = "a bucket is full at its burst",
    file = "src/core/limit.h",
    find = "return (tat > now_ns ? tat : now_ns) +",
    put = "return (tat ? tat : now_ns) +",
    test = "unit/core/limit",
    name = "a_pause_gives_back_what_the_rate_allows_and_no_more_than_the_burst",
  },
  {
    about = "whoever sends too much gets nothing through any more",
    guard = "what is refused is not charged",
    file = "src/core/limit.c",
    find = "        if (!mr__limit_is_within(next, now_ns, rate))\n"
      .. "            return false;\n"
      .. "    } while (",
    put = "        if (!mr__limit_is_within(next, now_ns, rate)) {\n"
      .. "            atomic_store(tat, next);\n"
      .. "            return false;\n"
      .. "        }\n"
      .. "    } while (",
    test = "unit/core/limit",
    name = "twice_the_rate_passes_until_the_burst_is_spent_and_then_by_half",
  },
  {
    about = "a player is told of his limit all the time",
    guard = "one notice in ten seconds",
    file = "src/service/seat.c",
    find = "if (*told_ns == 0 || s->now_ns - *told_ns >= pause_ns) {",
    put = "if (*told_ns == 0 || s->now_ns - *told_ns >= pause_ns / 10) {",
    test = "unit/service/join",
    name = "a_limit_is_told_once_in_ten_seconds_to_the_owner_alone",
  },
  {
    about = "a lifetime's traffic is one datagram too much",
    guard = "traffic passes below its limit",
    file = "src/core/plane.c",
    find = "if (m.lifetime_bytes && get(&s->lifetime_bytes) + size >= m.lifetime_bytes)",
    put = "if (m.lifetime_bytes && get(&s->lifetime_bytes) + size > m.lifetime_bytes)",
    test = "unit/core/plane",
    name = "lifetime_traffic_passes_below_its_limit_and_not_at_it",
  },
  {
    about = "a lifetime ends a moment too late",
    guard = "time passes below its limit",
    file = "src/core/plane.c",
    find = "if (life_end && m.now_ns >= life_end)",
    put = "if (life_end && m.now_ns > life_end)",
    test = "unit/core/plane",
    name = "lifetime_duration_passes_before_its_end_and_not_at_it",
  },
  {
    about = "a lifetime that is over is over for ever",
    guard = "connect-relay restarts lifetimes",
    file = "src/service/join.c",
    find = "if (seats[i] && mr_relay_restart(s->mr, seats[i]->relay) < 0) {",
    put = "if (seats[i] && seats[i]->relay == 0) {",
    test = "unit/service/join",
    name = "lifetime_traffic_stops_at_its_limit_and_connect_relay_restarts_it",
  },
  {
    about = "all share the global bandwidth, and one who floods has all of it",
    guard = "each sender is sure of his share",
    file = "src/core/plane.c",
    find = "return mr__limit_share_fits(&s->share, now_ns) ? GLOBAL_SHARE : GLOBAL_REFUSED;",
    put = "return GLOBAL_REFUSED;",
    test = "unit/core/plane",
    name = "a_flooding_relay_does_not_push_others_below_their_share_of_the_global_limit",
  },
  {
    about = "shares come on top of the global bandwidth",
    guard = "a share is charged to the limit, into debt",
    file = "src/core/limit.c",
    find = "    mr__limit_force(&g->tat_ns, rate, now_ns, bytes);\n",
    put = "    (void)rate;\n",
    test = "unit/core/plane",
    name = "a_share_lets_nobody_have_more_than_the_limit_who_is_alone",
  },

  -- ---- system calls
  {
    about = "sendmmsg refuses one datagram, and the tail of the batch is lost",
    guard = "the step over a refused datagram",
    file = "src/io/send.c",
    find = "err, full);\n"
      .. "            done++;\n",
    put = "err, full);\n"
      .. "            done = messages;\n",
    test = "unit/io/kernel",
    name = "one_refused_datagram_costs_only_itself",
  },
  {
    about = "sendmmsg stops short, and the tail of the batch is lost",
    guard = "what it did not send is sent by the next call",
    file = "src/io/send.c",
    find = "            done += (unsigned)sent;\n"
      .. "            full = 0;\n",
    put = "            done = messages;\n"
      .. "            full = 0;\n",
    test = "unit/io/kernel",
    name = "a_call_that_stops_short_is_continued",
  },
  {
    about = "a full socket is asked for every datagram of a batch",
    guard = "a few refusals for want of room end the batch",
    file = "src/io/send.c",
    find = "while (done < messages && full < TX_FULL_MAX) {",
    put = "while (done < messages) {",
    test = "unit/io/kernel",
    name = "a_full_buffer_ends_the_batch_and_a_hiccup_does_not",
  },
  {
    about = "a call that is always interrupted holds the thread",
    guard = "interruptions are counted",
    file = "src/io/send.c",
    find = "if (err == EINTR && ++interrupted < EINTR_MAX)",
    put = "if (err == EINTR && ++interrupted < 100000)",
    test = "unit/io/kernel",
    name = "endless_interruptions_do_not_hold_the_thread",
  },
  {
    about = "a read that fails once is an error for good",
    guard = "every error is over after its read",
    file = "src/io/kernel.c",
    find = "return r == -EAGAIN || r == -EINTR ? 0 : (int)r;",
    put = "return (int)r;",
    test = "unit/io/kernel",
    name = "nothing_there_is_no_error_and_interruptions_are_repeated",
  },
  {
    about = "a port's socket is closed while a worker is about to read it",
    guard = "it is closed when no worker can use it",
    file = "src/engine/port.c",
    find = "if (p->close_seq > in_force || mr->records[port].state != RELAY_NONE)",
    put = "if (mr->records[port].state != RELAY_NONE)",
    test = "unit/engine/port",
    name = "a_ports_socket_is_there_until_no_worker_can_use_it",
  },
  {
    about = "what waits at a port that is closed is the next one's",
    guard = "flows end with their port",
    file = "src/engine/worker.c",
    find = "    mr__pass_forget_port(w, c->port);\n",
    put = "",
    test = "unit/engine/flow",
    name = "closing_a_port_ends_the_flows_that_wait_there",
  },
  {
    about = "a policy goes on thinking about a relay that it has closed",
    guard = "questions end with their relay",
    file = "src/service/seat.c",
    find = "    mr__knock_target_ended(s, ev->u.ended.port);\n",
    put = "",
    test = "unit/service/knock",
    name = "a_target_that_ends_while_a_policy_thinks_ends_the_question",
  },

  -- ---- players
  {
    about = "a player who sprays the range reaches other games",
    guard = "datagrams pass within pairs",
    file = "src/core/plane.c",
    find = "    if (p->pairing == MR__PAIRING_PAIRED &&\n",
    put = "    if (p->pairing == 255 &&\n",
    test = "e2e/relay",
    name = "a_sprayed_range_reaches_no_other_game",
  },
  {
    about = "a kicked player's client goes on and has a relay again at once",
    guard = "his socket is not welcome",
    file = "src/service/session.c",
    find = "    mr__unwelcome_add(s, &addr);\n",
    put = "",
    test = "unit/service/players",
    name = "what_a_kicked_players_socket_sends_gets_no_relay_before_it_registers_anew",
  },
  {
    about = "a kicked player's relay goes on",
    guard = "a relay ends with its kicked player",
    file = "src/service/session.c",
    find = "    while ((seat = mr__seat_of_relay(s, mr_relay_of(s->mr, &addr))) != NULL) {\n"
      .. "        mr__seat_close(s, seat, why);\n"
      .. "    }\n",
    put = "",
    test = "unit/service/players",
    name = "a_kick_ends_every_relay_that_its_socket_has",
  },
  {
    about = "a kicked player's relay goes on because another plays from his socket",
    guard = "his own relay ends whoever else is there",
    file = "src/service/session.c",
    find = "    if (seat && !is_shared(s, p, seat)) {\n"
      .. "        mr__seat_close(s, seat, why);\n"
      .. "    }\n",
    put = "",
    test = "unit/service/players",
    name = "a_kick_ends_his_relay_and_not_that_of_another_at_his_socket",
  },
  {
    about = "a kick ends the relay of another who plays from the same socket",
    guard = "a shared relay outlives a kick",
    file = "src/service/session.c",
    find = "if (seat && !is_shared(s, p, seat)) {",
    put = "if (seat) {",
    test = "unit/service/players",
    name = "a_relay_that_another_session_shares_outlives_a_kick",
  },
  {
    about = "a blocked player registers again",
    guard = "blocked tags at registration",
    file = "src/service/registration.c",
    find = " || mr__blocks_have_tags(s, answer->tags)) {",
    put = ") {",
    test = "e2e/players",
    name = "who_is_blocked_by_tag_is_out_and_his_neighbour_plays_on",
  },
  {
    about = "a blocked player's socket gets another relay",
    guard = "blocked sockets at a knock",
    file = "src/service/knock.c",
    find = "    if (blocked_ns != 0) {\n"
      .. "        discard_blocked(s, k->flow, blocked_ns);\n"
      .. "        return false;\n"
      .. "    }\n",
    put = "",
    test = "unit/service/blocks",
    name = "what_the_socket_of_blocked_tags_keeps_sending_gets_no_relay_until_the_end",
  },
  {
    about = "a blocked address is served by the registrar",
    guard = "blocked addresses at the registrar",
    file = "src/service/registrar.c",
    find = " || mr__blocks_until(s, from) != 0) {",
    put = ") {",
    test = "unit/service/blocks",
    name = "the_registrar_is_silent_to_a_blocked_net",
  },
  {
    about = "a block of one player throws out the school behind his address",
    guard = "a block by tag blocks sockets, not addresses",
    file = "src/service/blocks.c",
    find = "    const struct block_what what = {.kind = MR_BLOCK_SOCKET, .addr = *addr};\n",
    put = "    struct block_what what = {.kind = MR_BLOCK_NET, .addr = *addr, .bits = 32};\n"
      .. "    what.addr.port = 0;\n",
    test = "unit/service/blocks",
    name = "a_neighbour_on_the_same_address_plays_on",
  },
  {
    about = "a block never ends",
    guard = "a block ends at its time",
    file = "src/service/blocks.c",
    find = "return b->due.at_ns <= s->now_ns;",
    put = "return b->due.at_ns == 0;",
    test = "unit/service/blocks",
    name = "a_block_ends_at_its_time_by_itself",
    also = {
      { find = "(first = mr__due_first(&s->blocks.due)) && first->at_ns <= s->now_ns)",
        put = "(first = mr__due_first(&s->blocks.due)) && first->at_ns == 0)" },
    },
  },
  {
    about = "a host whose network vanished is there for hours",
    guard = "keepalive",
    file = "src/io/listener.c",
    find = "    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);\n",
    put = "",
    test = "unit/io/listener",
    name = "a_peer_that_vanished_is_found_by_keepalive_and_a_lost_answer_by_its_timeout",
  },
  {
    about = "a host whose network vanished has left by himself",
    guard = "the end by a timeout is told as one",
    file = "src/control/tcp.c",
    find = "doom(c, error == UV_ETIMEDOUT || error == UV_EHOSTUNREACH ? MR_CONN_TIMEOUT : MR_CONN_RESET);",
    put = "(void)error;\n"
      .. "    doom(c, MR_CONN_RESET);",
    test = "e2e/vanish",
    name = "a_host_whose_network_vanishes_is_gone_within_65_s",
  },
  {
    about = "thirty players behind one address are taken for an attack",
    guard = "a cap that a school does not meet",
    file = "src/service/settings_table.c",
    find = [[{"max_connections_per_address", "256",]],
    put = [[{"max_connections_per_address", "16",]],
    test = "e2e/players",
    name = "thirty_players_on_one_address_play",
  },
  {
    about = "a policy's id of a relay names the next one at its port",
    guard = "a relay's generation",
    file = "src/core/relay.c",
    find = "if (!mr__relays_is_live(r, port) || r->at[port].generation != mr__relay_id_generation(id))",
    put = "if (!mr__relays_is_live(r, port))",
    test = "unit/core/relay",
    name = "an_id_names_one_relay_and_none_that_comes_after_it",
  },
  {
    about = "a policy closes the relay of somebody else, whose port was another's when it asked",
    guard = "an id is compared with whoever has the port",
    file = "src/engine/relay.c",
    find = "    return mr_relay_at(mr, port) == mr__relay_id(port, generation) && generation\n"
      .. "               ? mr__relay_id(port, generation)\n"
      .. "               : 0;\n",
    put = "    return generation ? mr_relay_at(mr, port) : 0;\n",
    test = "e2e/suspended",
    name = "a_relay_kept_over_a_wait_is_nobody_elses",
  },
  {
    about = "a crowd at the HTTP port that sends a byte each stays for ever",
    guard = "the time that a request has",
    file = "src/control/http.c",
    find = "        if (c->until_ms <= now_ms || (",
    put = "        if ((",
    test = "unit/control/http",
    name = "a_crowd_that_sends_a_byte_at_a_time_is_ended_and_stops_nobody",
  },
  {
    about = "a crowd at the HTTP port keeps everybody else out",
    guard = "connections of one address at the HTTP port",
    file = "src/control/http.c",
    find = "    return n >= MR_HTTP_CONNECTIONS_PER_ADDRESS;\n",
    put = "    return n >= MR_HTTP_CONNECTIONS;\n",
    test = "unit/control/http",
    name = "an_address_that_has_its_share_drives_nobody_out",
  },

  -- ---- caps
  {
    about = "one address takes all connections",
    guard = "connections of an address",
    file = "src/service/source.c",
    find = "return source->connections >= mr__settings_values(s->settings)->max_connections_per_address &&",
    put = "return source->connections == UINT32_MAX &&",
    test = "unit/service/caps",
    name = "one_address_may_have_so_many_connections_and_others_get_in",
  },
  {
    about = "a customer of IPv6 is as many addresses as he likes",
    guard = "an address of IPv6 is a /64",
    file = "src/core/address.c",
    find = "        memset(net.ip + 8, 0, 8);\n",
    put = "",
    test = "unit/service/caps",
    name = "a_customers_whole_64_of_ipv6_counts_as_one_address",
  },
  {
    about = "connections without end",
    guard = "connections in all",
    file = "src/service/connection.c",
    find = "if (s->n_connections > mr__settings_values(s->settings)->max_connections) {",
    put = "if (s->n_connections == SIZE_MAX) {",
    test = "unit/service/command",
    name = "a_connection_over_the_cap_is_told_and_closed",
  },
  {
    about = "registrations without end",
    guard = "sessions of a connection",
    file = "src/service/registration.c",
    find = "if (c->n_sessions >= mr__settings_values(s->settings)->max_sessions_per_connection) {",
    put = "if (c->n_sessions == UINT32_MAX) {",
    test = "unit/service/registration",
    name = "sessions_of_a_connection_are_capped",
  },
  {
    about = "one client's commands take the time of all",
    guard = "the pace of commands",
    file = "src/service/connection.c",
    find = "if (c->in_at < c->in_n && !mr__pace_fits(c->commands_full_ns, pace, s->now_ns)) {",
    put = "if (c->in_at > c->in_n) {",
    test = "unit/service/caps",
    name = "who_commands_too_fast_is_read_more_slowly_and_loses_nothing",
  },
  {
    about = "a client that does not read fills our memory",
    guard = "the output that may wait",
    file = "src/control/tcp.c",
    find = "    if (c->out.n + c->inflight.n > t->output_bytes) {\n"
      .. "        doom(",
    put = "    if (c->out.n + c->inflight.n > SIZE_MAX / 2) {\n"
      .. "        doom(",
    test = "unit/control/tcp",
    name = "a_client_that_never_reads_is_closed_when_its_output_is_too_much",
  },
  {
    about = "ids are guessed as fast as the network is",
    guard = "wrong ids of an address in a minute",
    file = "src/service/command.c",
    find = "if (code == MR_CODE_UNKNOWN_OID && is_to_be_late(s, c)) {",
    put = "if (code == MR_CODE_UNKNOWN_OID && is_to_be_late(s, c) && !c) {",
    test = "unit/service/caps",
    name = "after_so_many_wrong_ids_the_same_answer_comes_two_seconds_late",
  },
  {
    about = "one stranger takes the ports of all strangers",
    guard = "strangers' relays of an address",
    file = "src/service/dynamic.c",
    find = "source->dynamics >= v->dynamic_per_address",
    put = "source->dynamics == UINT32_MAX",
    test = "unit/service/knock",
    name = "dynamic_relays_are_capped_by_share_source_and_target",
  },
  {
    about = "all strangers knock at one player",
    guard = "strangers' relays of a target",
    file = "src/service/dynamic.c",
    find = "           (target && target->dynamics_to_me >= v->dynamic_per_target) ||\n",
    put = "",
    test = "unit/service/knock",
    name = "dynamic_relays_are_capped_by_share_source_and_target",
  },
  {
    about = "a school that is exempt is capped all the same",
    guard = "caps_exempt",
    file = "src/service/source.c",
    find = "return mr__nets_contain(&s->caps_exempt, from);",
    put = "return from->family == 0;",
    test = "unit/service/caps",
    name = "networks_that_are_exempt_have_no_cap_per_address",
  },
  {
    about = "one host of a /64 is exempt and capped all the same, or all of its /64 is exempt with it",
    guard = "whoever comes is looked for in caps_exempt, not his net",
    file = "src/service/source.c",
    find = "           !mr__source_is_exempt(s, from);",
    put = "           from && !mr__source_is_exempt(s, &source->net);",
    test = "unit/service/caps",
    name = "one_host_of_a_64_may_be_exempt",
  },
  {
    about = "a school that is exempt has no more relays than one stranger",
    guard = "caps_exempt for strangers",
    file = "src/service/dynamic.c",
    find = "            !mr__source_is_exempt(s, from)) ||",
    put = "            from->family != 0) ||",
    test = "unit/service/knock",
    name = "dynamic_relays_are_capped_by_share_source_and_target",
  },
  {
    about = "a school that is exempt waits for the answers to codes that it mistypes",
    guard = "caps_exempt for wrong ids",
    file = "src/service/command.c",
    find = "!c->request.is_late && !mr__source_is_exempt(s, &c->peer) &&",
    put = "!c->request.is_late &&",
    test = "unit/service/caps",
    name = "networks_that_are_exempt_have_no_cap_per_address",
  },
  {
    about = "a school that is exempt is not answered by the registrar",
    guard = "caps_exempt for unknown ids",
    file = "src/service/registrar.c",
    find = "return mr__source_is_exempt(s, from) ||",
    put = "return from->family == 0 ||",
    test = "unit/service/registrar",
    name = "a_net_that_is_exempt_is_answered_without_a_budget",
  },
  {
    about = "the registrar answers junk as fast as it comes",
    guard = "answers to unknown ids of an address",
    file = "src/service/registrar.c",
    find = "    if (!may_ask(s, from)) {\n",
    put = "    if (!may_ask(s, from) && n == 0) {\n",
    test = "unit/service/registrar",
    name = "answers_to_unknown_ids_have_a_budget_per_source_and_a_real_id_needs_none",
  },
  {
    about = "one stranger's flow fills what is held of all",
    guard = "datagrams of a flow",
    file = "src/engine/hold.c",
    find = "if (flow->datagrams >= flow->max_datagrams || size",
    put = "if (size",
    test = "unit/engine/hold",
    name = "a_flow_is_bounded_by_datagrams_and_by_bytes",
  },
  {
    about = "one stranger's large datagrams fill what is held of all",
    guard = "bytes of a flow",
    file = "src/engine/hold.c",
    find = "|| size > flow->max_bytes ||\n"
      .. "        flow->bytes > flow->max_bytes - size)",
    put = ")",
    test = "unit/engine/hold",
    name = "a_flow_is_bounded_by_datagrams_and_by_bytes",
  },
  {
    about = "flows without end",
    guard = "flows that wait",
    file = "src/engine/hold.c",
    find = "h->pending.count < h->limits.flows ? take_flow(h) : NULL;",
    put = "take_flow(h);",
    test = "unit/engine/hold",
    name = "quiet_flows_give_way_and_pending_ones_do_not",
  },
  {
    about = "memory without end is held",
    guard = "memory of what waits",
    file = "src/engine/hold.c",
    find = "return h->unused_block < h->block_count ? h->unused_block++ : NONE;",
    put = "return h->unused_block++;",
    test = "unit/engine/hold",
    name = "the_pool_is_bounded_and_gets_all_of_it_back",
  },
  {
    about = "what nobody decides on waits for ever",
    guard = "the time of a flow",
    file = "src/engine/pass.c",
    find = "while ((flow = mr__hold_due(&w->hold)) && flow->until_ns <= w->now_ns) {",
    put = "while ((flow = mr__hold_due(&w->hold)) && flow->until_ns == 0) {",
    test = "unit/engine/flow",
    name = "what_waits_too_long_is_given_up",
  },
  {
    about = "strangers by the thousand keep the deciding thread busy",
    guard = "questions in a second",
    file = "src/engine/pass.c",
    find = "if (!mr__limit_take(&w->event_tat_ns, rate, w->now_ns, 1)) {",
    put = "if (!mr__limit_take(&w->event_tat_ns, rate, w->now_ns, 0)) {",
    test = "unit/engine/flow",
    name = "strangers_above_the_budget_cost_no_event",
  },
  {
    about = "no descriptor is left, and the accepting thread spins",
    guard = "the listener rests",
    file = "src/control/tcp.c",
    find = "    if (rc < 0 && rc != -EAGAIN) {\n"
      .. "        rest(t);\n"
      .. "    }\n",
    put = "",
    test = "unit/control/tcp",
    name = "a_listener_that_has_lost_its_spare_descriptor_rests_and_comes_back",
  },
  {
    about = "no descriptor is left, and whoever waits to be accepted keeps the loop busy",
    guard = "a waiting connection is ended with the spare descriptor",
    file = "src/control/tcp.c",
    find = "} else if (is_shortage(fd) && !shed(t)) {",
    put = "} else if (is_shortage(fd)) {",
    test = "unit/control/tcp",
    name = "without_a_descriptor_left_a_connection_is_ended_and_nothing_spins",
  },
  {
    about = "no descriptor is left, and the HTTP port spins",
    guard = "the listener rests",
    file = "src/control/http.c",
    find = "        if (rc < 0 && rc != -EAGAIN) {\n",
    put = "        if (rc > 0) {\n",
    test = "unit/control/http",
    name = "a_listener_that_has_lost_its_spare_descriptor_rests_and_comes_back",
  },

  -- ---- who is relayed to
  {
    about = "a victim's address is registered from elsewhere and gets a flood",
    guard = "datagrams to an address that has sent nothing",
    file = "src/core/proof.c",
    find = "return left >> 32 > 0 && (uint32_t)left >= bytes;",
    put = "return (uint32_t)left >= bytes;",
    test = "unit/core/plane",
    name = "an_unproven_address_gets_sixteen_datagrams_until_it_has_sent_one",
  },
  {
    about = "a victim's address is registered from elsewhere and gets large datagrams",
    guard = "bytes to an address that has sent nothing",
    file = "src/core/proof.c",
    find = "return left >> 32 > 0 && (uint32_t)left >= bytes;",
    put = "return left >> 32 > 0;",
    test = "unit/core/plane",
    name = "an_unproven_address_gets_16_kib_until_it_has_sent_something",
  },
  {
    about = "a victim that sent one datagram gets a flood",
    guard = "a rate to an address that has sent little",
    file = "src/core/proof.c",
    find = "return mr__limit_fits(&p->tat_ns, rate_of(), now_ns, bytes) || earned_at(p, now_ns) >= bytes;",
    put = "return get(&p->has_sent) != 0;",
    test = "unit/core/plane",
    name = "once_it_has_sent_it_gets_32_kib_a_second_or_ten_times_what_it_sends",
  },
  {
    about = "a player of a fast game at another address than his connection's is held back",
    guard = "ten times what he sends",
    file = "src/core/proof.c",
    find = " || earned_at(p, now_ns) >= bytes;",
    put = ";",
    test = "unit/core/plane",
    name = "once_it_has_sent_it_gets_32_kib_a_second_or_ten_times_what_it_sends",
  },
  {
    about = "one burst that a victim answered pays for a flood an hour later",
    guard = "what was sent in the last ten seconds",
    file = "src/core/proof.c",
    find = "    set(&p->earned_before, half - old == 1 ? earned : 0);\n",
    put = "    set(&p->earned_before, get(&p->earned_before) + earned);\n",
    test = "unit/core/plane",
    name = "what_it_sent_more_than_ten_seconds_ago_earns_it_nothing",
  },
  {
    about = "an address from elsewhere is taken for the player's own",
    guard = "who vouches for an address",
    file = "src/service/seat.c",
    find = "return !mr__session_vouches(s, req->peer);",
    put = "return false;",
    test = "unit/service/peers",
    name = "a_player_registered_at_another_ip_than_his_connections_gets_little_until_he_speaks",
  },
  {
    about = "traffic is laundered to a victim by a stranger's relay, made by one datagram in his name",
    guard = "a stranger's relay needs proof",
    file = "src/service/seat.c",
    find = "return req->target && !mr__known_vouches(s, req->peer);",
    put = "return false;",
    test = "unit/service/peers",
    name = "a_stranger_whose_ip_no_players_connection_came_from_gets_as_little",
  },
  {
    about = "a PID in a player's name takes his relay, and moves away with it",
    guard = "who may own a relay",
    file = "src/service/seat.c",
    find = "    return mr_addr_same_ip(at, &p->connection->peer) ||\n",
    put = "    return true ||\n",
    test = "unit/service/peers",
    name = "a_pid_shown_in_a_players_name_takes_no_relay_away",
  },
  {
    about = "a relay that a PID has brought to a player's address moves away with his game",
    guard = "a player goes before a PID",
    file = "src/service/seat.c",
    find = "owner->addressed < p->addressed || !mr__seat_may_own(owner, &owner->addr, p));",
    put = "owner->addressed < p->addressed);",
    test = "unit/service/peers",
    name = "a_relay_that_a_pid_brings_to_a_players_address_is_the_players_once_he_joins",
  },
  {
    about = "some hundred relays that all join each other take all pairs",
    guard = "pairs for relays that have none",
    file = "src/core/pair.c",
    find = "pool->used + (uint64_t)pool->reserved < pool->max",
    put = "pool->used < pool->max",
    test = "unit/core/pair",
    name = "relays_that_all_join_each_other_leave_pairs_for_those_that_have_none",
  },
  {
    about = "a relay that a PID in a player's name has made moves away with it",
    guard = "whose a new relay is",
    file = "src/service/join.c",
    find = "mr__session_owner_at(s, &p->addr, p)->id",
    put = "mr__session_at(s, &p->addr)->id",
    test = "unit/service/peers",
    name = "a_relay_that_is_made_for_a_pid_shown_in_a_players_name_is_the_players",
  },
  {
    about = "a player is moved to another's address, and speaks for him",
    guard = "a relay that is not moved to another's",
    file = "src/service/registrar.c",
    find = "    if (seat && would_take_over(s, p, from)) {\n",
    put = "    if (seat && would_take_over(s, p, from) && false) {\n",
    test = "unit/service/peers",
    name = "a_player_whom_a_pid_alone_brings_to_anothers_address_speaks_for_nobody_there",
  },
  {
    about = "an IPv6 packet speaks for an IPv4 address",
    guard = "a source of the family that the datagram came by",
    file = "src/service/registrar.c",
    find = "    if (is_mapped_by_sender(from, local)) {\n",
    put = "    if (is_mapped_by_sender(from, local) && false) {\n",
    test = "unit/service/peers",
    name = "a_mapped_source_is_ipv4_only_where_the_datagram_came_to_such_an_address",
  },
  {
    about = "a PID in the name of a latched source undoes the latch",
    guard = "who may undo a latch",
    file = "src/service/registrar.c",
    find = "    if (mr__session_is_near(p)) {\n        mr_address_unlatch",
    put = "    if (true) {\n        mr_address_unlatch",
    test = "unit/service/latch",
    name = "a_pid_shown_in_the_name_of_a_latched_source_undoes_no_latch",
  },
  {
    about = "a policy judges a player by whoever shows a PID in his name",
    guard = "whose a stranger's address is",
    file = "src/service/knock.c",
    find = "latest ? mr__session_owner_at(s, &k->from, latest) : NULL",
    put = "latest ? latest : NULL",
    test = "unit/service/peers",
    name = "a_policy_is_asked_about_the_player_and_not_about_a_pid_shown_in_his_name",
  },
  {
    about = "a PID in the name of a player whose connection has ended takes his relay away",
    guard = "who may move a relay that is nobody's",
    file = "src/service/registrar.c",
    find = "!mr__session_find(s, seat->owner) && mr__session_is_near(p) ? seat",
    put = "!mr__session_find(s, seat->owner) ? seat",
    test = "unit/service/peers",
    name = "a_pid_shown_in_a_players_name_takes_no_relay_away",
  },
  {
    about = "a player moves to a victim's address in the middle of a game",
    guard = "a move to another IP needs proof",
    file = "src/service/registrar.c",
    find = "        mr_relay_set_proof(s->mr, seat->relay, MR_PROOF_NEEDED);\n",
    put = "        (void)p;\n",
    test = "unit/service/peers",
    name = "whoever_moves_to_another_ip_has_to_prove_it",
  },
  {
    about = "a service below port 1024 is registered and relayed to",
    guard = "low ports at the registrar",
    file = "src/service/peer.c",
    find = "from->port < (allow_low ? 1 : MR_LOWEST_PLAYER_PORT)",
    put = "from->port < 1",
    test = "unit/service/registrar",
    name = "services_and_our_own_sockets_are_never_answered",
  },
  {
    about = "a service below port 1024 knocks and is relayed to",
    guard = "the judgement of a stranger",
    file = "src/service/knock.c",
    find = "    if (judged != MR_VERDICT_FORWARD) {\n"
      .. "        give_up(s, k->flow, judged);\n"
      .. "        return false;\n"
      .. "    }\n",
    put = "    (void)judged;\n",
    test = "unit/service/knock",
    name = "services_are_not_relayed_to",
  },
  {
    about = "a target below port 1024",
    guard = "low ports as targets",
    file = "src/service/target.c",
    find = "if (dest->port < MR_LOWEST_PLAYER_PORT && !mr__settings_values(s->settings)->allow_low_ports) {",
    put = "if (dest->port == 0) {",
    test = "unit/service/target",
    name = "a_hostile_target_gets_nothing_and_the_log_says_why",
  },
  {
    about = "a forged private address makes us send into our own network",
    guard = "classes of addresses",
    file = "src/service/peer.c",
    find = "return (ours & MR_ADDR_LOOPBACK) || ((theirs & INSIDE) && (ours & INSIDE));",
    put = "return ours || theirs;",
    test = "unit/service/peers",
    name = "private_and_loopback_players_are_served_where_they_can_have_come_from",
  },
  {
    about = "a forged private address is relayed to, since no route says where it came in",
    guard = "routes that do not answer vouch for nobody",
    file = "src/service/peer.c",
    find = "        return (struct mr_addr){.family = is_unknowable ? 0 : from->family};\n",
    put = "        return (struct mr_addr){.family = is_unknowable};\n",
    test = "e2e/threats",
    name = "a_private_source_is_nobody_at_a_public_address_whatever_the_routes_say",
  },
  {
    about = "a forged private address is relayed to from a port that is bound to a wildcard",
    guard = "the routes are asked where a datagram came in",
    file = "src/service/peer.c",
    find = "    mr_addr_canonicalize(&local);\n",
    put = "    local.family = 0;\n",
    test = "e2e/threats",
    name = "a_private_source_is_nobody_at_a_public_address_whatever_the_routes_say",
  },
  {
    about = "a network is denied and served",
    guard = "deny_peers",
    file = "src/service/peer.c",
    find = "if (mr__nets_contain(&s->deny_peers, from)) {",
    put = "if (from->family == 0) {",
    test = "unit/service/peers",
    name = "lists_of_networks_override_the_class_and_denial_wins",
  },
  {
    about = "a network is allowed and not served",
    guard = "allow_peers",
    file = "src/service/peer.c",
    find = " || mr__nets_contain(&s->allow_peers, from)\n",
    put = "\n",
    test = "unit/service/peers",
    name = "lists_of_networks_override_the_class_and_denial_wins",
  },
  {
    about = "a denied network is a target",
    guard = "deny_peers for targets",
    file = "src/service/target.c",
    find = " || mr__nets_contain(&s->deny_peers, dest)) {",
    put = ") {",
    test = "unit/service/target",
    name = "no_target_lies_in_a_denied_network",
  },
  {
    about = "a policy opens a relay to an address that no player may have",
    guard = "the judgement of relay.open's peer",
    file = "src/service/open.c",
    find = "    if (judged != MR_VERDICT_FORWARD) {\n",
    put = "    if (judged == MR_VERDICT_COUNT) {\n",
    test = "unit/service/open",
    name = "what_cannot_be_had_is_told_by_a_code",
  },
  {
    about = "a datagram forged from a port of ours is asked about, and a policy admits it",
    guard = "our own addresses in the data plane",
    file = "src/core/plane.c",
    find = "if (out->charged == m.nobody && mr__own_contains(&p->own, &rx->from)) {",
    put = "if (out->charged == m.nobody && rx->from.family == 0) {",
    test = "unit/core/plane",
    name = "our_own_address_is_a_drop_and_no_miss_that_a_policy_could_admit",
  },
  {
    about = "a port that is bound to a wildcard is not ours at the machine's other addresses",
    guard = "the addresses of the machine",
    file = "src/engine/port.c",
    find = "            (void)add_own(mr, &found[i]);\n",
    put = "            (void)0;\n",
    test = "unit/engine/port",
    name = "a_wildcard_port_is_ours_at_every_local_address",
  },
  {
    about = "a datagram goes round by way of our NAT",
    guard = "our ports at the public address",
    file = "src/engine/port.c",
    find = "return seen->family && !is_wildcard(local) && !mr_addr_equal(seen, local);",
    put = "return seen->family == 255 && !is_wildcard(local);",
    test = "unit/service/peers",
    name = "our_ports_at_the_public_address_are_our_own",
  },

  -- ---- drain and root
  {
    about = "a new host is joined during a drain, and his game is cut",
    guard = "who registered during a drain cannot be joined",
    file = "src/service/join.c",
    find = "    } else if (mr__drain_keeps_from(s, *host)) {\n",
    put = "    } else if (mr__drain_keeps_from(s, *host) && !*caller) {\n",
    test = "unit/service/drain",
    name = "a_running_game_takes_players_who_come_back_and_a_new_host_cannot_be_joined",
  },
  {
    about = "a drain sends running games away",
    guard = "only hosts from after its beginning are kept from",
    file = "src/service/drain.c",
    find = "return s->drain.is_on && host->drain == s->drain.number;",
    put = "return s->drain.is_on && host;",
    test = "e2e/drain",
    name = "a_running_game_goes_on_and_takes_back_whom_it_lost",
  },
  {
    about = "a load balancer sends players to a daemon that drains",
    guard = "readiness says that it drains",
    file = "src/service/service.c",
    find = "    if (s->drain.is_on) {\n"
      .. "        struct drain_view drain;",
    put = "    if (s->drain.is_on && s->pool.n == SIZE_MAX) {\n"
      .. "        struct drain_view drain;",
    test = "e2e/drain",
    name = "a_running_game_goes_on_and_takes_back_whom_it_lost",
  },
  {
    about = "a supervisor restarts a daemon that drains",
    guard = "a drain is no illness",
    file = "src/control/http.c",
    find = "    if (strcmp(path, \"/livez\") == 0) {\n"
      .. "        return",
    put = "    if (strcmp(path, \"/livez\") == 0 && !h->opts.not_ready(h->opts.user)) {\n"
      .. "        return",
    test = "e2e/drain",
    name = "a_running_game_goes_on_and_takes_back_whom_it_lost",
  },
  {
    about = "a drain of an empty daemon takes its whole time",
    guard = "it is over when nobody is left",
    file = "src/service/drain.c",
    find = "    if (is_empty(s) || left_ns(s) == 0) {\n",
    put = "    if (left_ns(s) == 0) {\n",
    test = "unit/service/drain",
    name = "it_is_over_when_the_last_relay_ends_and_the_last_old_session_has_left",
  },
  {
    about = "a drain never ends while somebody idles",
    guard = "it is over at its time",
    file = "src/service/drain.c",
    find = "    if (is_empty(s) || left_ns(s) == 0) {\n",
    put = "    if (is_empty(s)) {\n",
    test = "unit/service/drain",
    name = "a_session_without_a_relay_is_waited_for_until_the_deadline",
  },
  {
    about = "players are not told of a drain",
    guard = "the notice to everybody",
    file = "src/service/drain.c",
    find = "           LOG_STRN(\"by\", by.s, by.n));\n"
      .. "    tell_all(s);\n"
      .. "}\n"
      .. "\n"
      .. "int mr__drain_begin",
    put = "           LOG_STRN(\"by\", by.s, by.n));\n"
      .. "}\n"
      .. "\n"
      .. "int mr__drain_begin",
    test = "unit/service/drain",
    name = "a_running_game_takes_players_who_come_back_and_a_new_host_cannot_be_joined",
  },
  {
    about = "whoever comes during a drain waits in vain to be joined",
    guard = "the notice to newcomers",
    file = "src/service/registration.c",
    find = "    mr__drain_tell(s, c); /* that nobody can join him now */\n",
    put = "",
    test = "e2e/drain",
    name = "a_running_game_goes_on_and_takes_back_whom_it_lost",
  },
  {
    about = "a drain that was taken back keeps players from each other",
    guard = "a cancelled drain is over",
    file = "src/service/drain.c",
    find = "return s->drain.is_on && host->drain == s->drain.number;",
    put = "return host->drain && host->drain == s->drain.number;",
    test = "unit/service/drain",
    name = "a_cancelled_drain_is_as_if_it_had_never_begun",
  },
  {
    about = "an operator takes back what a supervisor waits for",
    guard = "a stop's drain is final",
    file = "src/service/drain.c",
    find = "if (s->is_stopping || s->drain.is_final || s->drain.is_over) {",
    put = "if (s->is_stopping || s->drain.is_over) {",
    test = "unit/service/drain",
    name = "a_stop_drains_for_drain_timeout_and_cannot_be_taken_back",
  },
  {
    about = "a daemon that root started serves as root",
    guard = "root's rights are given up",
    file = "src/server/user.c",
    find = "int rc = u->is_other ? mr__privileges_give_up(&u->who) : 0;",
    put = "int rc = u->is_other ? 0 : 0;",
    test = "e2e/privileges",
    name = "it_binds_low_ports_and_keeps_nothing_of_root",
  },
  {
    about = "a daemon that root started is still in root's groups",
    guard = "the user's groups",
    file = "src/control/privileges.c",
    find = "if (initgroups(who->name, who->gid) < 0 || setresgid",
    put = "if (setresgid",
    test = "e2e/privileges",
    name = "it_binds_low_ports_and_keeps_nothing_of_root",
  },
  {
    about = "a program that the daemon starts is root again",
    guard = "no new privileges",
    file = "src/server/user.c",
    find = "int rc = u->is_other ? mr__privileges_gain_none() : 0;",
    put = "int rc = u->is_other ? 0 : 0;",
    test = "e2e/privileges",
    name = "it_binds_low_ports_and_keeps_nothing_of_root",
  },
  {
    about = "policies load with root's rights",
    guard = "the first step down, before they load",
    file = "src/control/privileges.c",
    find = "    if (initgroups(who->name, who->gid) < 0 || setresgid(who->gid, who->gid, who->gid) < 0 ||\n"
      .. "        seteuid(who->uid) < 0) {",
    put = "    if (initgroups(who->name, who->gid) < 0 || setresgid(who->gid, who->gid, who->gid) < 0) {",
    test = "e2e/privileges",
    name = "policies_load_with_the_rights_of_the_user",
  },
  {
    about = "user = root, and nothing is given up",
    guard = "another user than root",
    file = "src/server/user.c",
    find = "    if (out->who.uid == 0) {\n",
    put = "    if (out->who.uid == (uid_t)-1) {\n",
    test = "e2e/privileges",
    name = "a_user_that_cannot_be_become_stops_the_start",
  },
  {
    about = "24 clients from as many addresses keep everybody from the figures for 10 s",
    guard = "the longest there goes when all places are taken",
    file = "src/control/http.c",
    find = "    if (make_room(h)) {",
    put = "    if (false && make_room(h)) {",
    test = "unit/control/http",
    name = "a_crowd_from_as_many_addresses_as_there_are_places_keeps_nobody_out",
  },
  {
    about = "a customer with a /64 of IPv6 drives everybody else out of the HTTP port",
    guard = "a /64 has the share of one address at the HTTP port",
    file = "src/control/http.c",
    find = "        c->net = mr_addr_net(&peer);\n",
    put = "        c->net = peer;\n        c->net.port = 0;\n",
    test = "e2e/http",
    name = "a_customers_whole_64_of_ipv6_has_the_share_of_one_address",
  },
  {
    about = "a reload that brings a port back finds it in use, by ourselves",
    guard = "a port that closes yields to its successor",
    file = "src/engine/port.c",
    find = "    socket_flags |= is_yielding(mr, &addr) ? SOCKET_SUCCESSOR : 0;\n",
    put = "    (void)is_yielding;\n",
    test = "unit/engine/port",
    name = "a_port_that_is_closed_opens_again_while_a_worker_still_has_its_socket",
  },
}
