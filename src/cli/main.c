/* SPDX-License-Identifier: MIT */
/*
 * The daemon `moonrelay`: arguments, signals, exit codes. Everything else is behind
 * moonrelay/server.h. Start reading at main() and serve().
 *
 * To add a command, add it to MR_COMMANDS in arguments.h, to help.c and to run().
 */
#include "cli/arguments.h"
#include "cli/busted.h"
#include "cli/help.h"
#include "server/moonrelay/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOG_FLUSH_MS = 2000 }; /* a reader that takes longer loses the last lines */

/* The one server of this process, for the signal handlers. */
static _Atomic(struct mr_server *) running;

static int complain(const char *text, int code)
{
    fprintf(stderr, "moonrelay: %s\n", text);
    return code;
}

static void on_signal(int signal)
{
    struct mr_server *server = atomic_load(&running);

    if (server && signal == SIGHUP) {
        mr_server_hangup(server);
    } else if (server && signal == SIGUSR1) {
        mr_server_drain(server);
    } else if (server) {
        mr_server_stop(server);
    } else if (signal != SIGHUP && signal != SIGUSR1) {
        _exit(MR_SERVER_EXIT_OK); /* still starting: nobody was let in yet */
    }
}

static void set_signals(void)
{
    static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++) {
        sigaction(handled[i], &action, NULL);
    }
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

#ifdef MR_SANITIZED
static void ignore_signals(void)
{
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
}
#endif

/* A parent that closed a standard stream would have our first socket take its number, and the log
 * go to a player. */
static void fill_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0) {
            _exit(MR_SERVER_EXIT_FAILED);
        }
    }
}

/*
 * Ends by _exit(): what has to reach somebody is flushed by then, and taking apart some
 * thousand sockets and a script state is time in which a supervisor waits. Under a
 * sanitizer it is taken apart all the same, because leaks are looked for on the way out.
 */
static int serve(const struct mr_server_options *opts)
{
    struct mr_server_error err = {.code = MR_SERVER_EXIT_FAILED};
    struct mr_server *server = NULL;
    int rc;

    set_signals();
    if (mr_server_create(&server, opts, &err) < 0) {
        return complain(err.text, err.code);
    }
    atomic_store(&running, server);
    rc = mr_server_run(server);
    mr_server_flush_log(server, LOG_FLUSH_MS);
    if (rc < 0) {
        complain("the loop has failed", MR_SERVER_EXIT_FAILED);
    }
    fflush(NULL);
#ifdef MR_SANITIZED
    ignore_signals();
    mr_server_destroy(server);
    exit(rc < 0 ? MR_SERVER_EXIT_FAILED : MR_SERVER_EXIT_OK);
#endif
    _exit(rc < 0 ? MR_SERVER_EXIT_FAILED : MR_SERVER_EXIT_OK);
}

static int check(struct mr_server_options *opts, const struct arguments *args)
{
    struct mr_server_error err = {.code = MR_SERVER_EXIT_FAILED};

    if (args->n_operands > 0) {
        opts->config = args->operands[0];
    }
    if (mr_server_check(opts, stdout, &err) < 0) {
        return complain(err.text, err.code);
    }
    puts("ok");
    return MR_SERVER_EXIT_OK;
}

static int print_settings(const struct mr_server_options *opts, const struct arguments *args)
{
    struct mr_server_error err = {.code = MR_SERVER_EXIT_FAILED};

    if (mr_server_print_settings(opts, args->operands[0], stdout, &err) < 0) {
        return complain(err.text, err.code);
    }
    return MR_SERVER_EXIT_OK;
}

static int ask(const struct mr_server_options *opts, const struct arguments *args)
{
    struct mr_server_error err = {.code = MR_SERVER_EXIT_FAILED};
    struct mr_server_question q;

    mr_server_question_init(&q, sizeof q);
    q.control = args->control;
    q.command = mr__arguments_word(args->command);
    q.args = args->operands;
    q.n_args = args->n_operands;
    q.is_json = args->is_json;
    q.is_check = args->is_check;
    q.is_cancel = args->is_cancel;
    if (mr_server_ask(opts, &q, stdout, &err) == 0) {
        return MR_SERVER_EXIT_OK;
    }
    if (!q.is_json) { /* else it was printed */
        complain(err.text, err.code);
    }
    return err.code;
}

static int print_ticket(const struct arguments *args)
{
    struct mr_server_error err = {.code = MR_SERVER_EXIT_FAILED};
    struct mr_server_ticket t;

    mr_server_ticket_init(&t, sizeof t);
    t.subject = args->sub;
    t.game = args->game;
    t.key = args->key;
    t.key_variable = args->key_variable ? args->key_variable : t.key_variable;
    t.ttl = args->ttl ? args->ttl : t.ttl;
    return mr_server_print_ticket(&t, environ, stdout, &err) < 0 ? complain(err.text, err.code)
                                                                 : MR_SERVER_EXIT_OK;
}

static int print_help(const struct arguments *args)
{
    const char *page = mr__help_page(args->operands[0]);
    char text[160];

    if (!page) {
        snprintf(text, sizeof text, "unknown command \"%.100s\"; see moonrelay --help",
                 args->operands[0]);
        return complain(text, MR_SERVER_EXIT_USAGE);
    }
    fputs(page, stdout);
    return MR_SERVER_EXIT_OK;
}

static int run(const struct arguments *args)
{
    struct mr_server_options opts;

    mr_server_options_init(&opts, sizeof opts);
    opts.config = args->config;
    opts.policies = args->policies;
    opts.n_policies = args->n_policies;
    opts.sets = args->sets;
    opts.n_sets = args->n_sets;
    opts.environment = environ;
    opts.dotenv = ".env";
    switch (args->command) {
    case CLI_SERVE:
        return serve(&opts);
    case CLI_CHECK:
        return check(&opts, args);
    case CLI_SETTINGS:
        return print_settings(&opts, args);
    case CLI_TEST:
        return complain("test comes before its arguments: moonrelay test [FILES]",
                        MR_SERVER_EXIT_USAGE);
    case CLI_VERSION:
        mr_server_print_version(stdout);
        return MR_SERVER_EXIT_OK;
    case CLI_TICKET:
        return print_ticket(args);
    case CLI_HELP:
        return print_help(args);
    default:
        return ask(&opts, args);
    }
}

/* All behind `test` is busted's, but whoever asks for help means our page first. */
static bool is_for_busted(int argc, char *const *argv)
{
    bool is_test = argc > 1 && strcmp(argv[1], "test") == 0;

    return is_test &&
           !(argc == 3 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0));
}

int main(int argc, char **argv)
{
    struct arguments args;
    char error[512];
    int code;

    fill_standard_streams();
    if (is_for_busted(argc, argv)) {
        mr__busted_become(argv + 2, error, sizeof error);
        return complain(error, MR_SERVER_EXIT_FAILED);
    }
    if (mr__arguments_read(&args, argc, argv, error, sizeof error) < 0) {
        return complain(error, MR_SERVER_EXIT_USAGE);
    }
    code = run(&args);
    mr__arguments_deinit(&args);
    if (fflush(stdout) != 0 && code == MR_SERVER_EXIT_OK) {
        return complain("cannot write to stdout", MR_SERVER_EXIT_FAILED);
    }
    return code;
}
