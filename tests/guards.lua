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
}
