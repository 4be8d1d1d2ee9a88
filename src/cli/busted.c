/* SPDX-License-Identifier: MIT */
/*
 * See busted.h. The Lua files and the C module are beside the daemon of a build, and in
 * share/ and lib/ beside its bin/ when it is installed, wherever that has been moved.
 */
#include "cli/busted.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 3 * PATH_MAX };

/* false: it does not fit. */
__attribute__((format(printf, 3, 4))) static bool print(char *out, size_t cap, const char *format,
                                                        ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(out, cap, format, args);
    va_end(args);
    return n >= 0 && (size_t)n < cap;
}

static bool find_program(const char *name, char file[PATH_MAX])
{
    const char *path = getenv("PATH");

    while (path && *path) {
        size_t n = strcspn(path, ":");

        if (print(file, PATH_MAX, "%.*s/%s", (int)n, path, name) && access(file, X_OK) == 0) {
            return true;
        }
        path += n + (path[n] == ':');
    }
    return false;
}

/* The folder of this program, without a slash at its end. */
static bool find_folder(char *folder, size_t cap)
{
    ssize_t n = readlink("/proc/self/exe", folder, cap - 1);
    char *slash;

    if (n <= 0) {
        return false;
    }
    folder[n] = '\0';
    slash = strrchr(folder, '/');
    if (slash) {
        *slash = '\0';
    }
    return slash != NULL;
}

/* Where the module is in an installation: lib/lua/5.1, or lib/ARCHITECTURE/lua/5.1. */
static bool find_module(const char *prefix, char *folder, size_t cap)
{
    static const char *const places[] = {"lib/lua/5.1", "lib/*/lua/5.1"};
    bool is_found = false;

    for (size_t i = 0; !is_found && i < sizeof places / sizeof places[0]; i++) {
        char pattern[PATH_MAX];
        glob_t g;

        if (print(pattern, sizeof pattern, "%s/%s/moonrelay_core.so", prefix, places[i]) &&
            glob(pattern, GLOB_NOSORT, NULL, &g) == 0) {
            is_found = print(folder, cap, "%s", g.gl_pathv[0]);
            *strrchr(folder, '/') = '\0';
            globfree(&g);
        }
    }
    return is_found;
}

/* Before what the variable holds already; an empty item stands for Lua's own default. */
static void put_before(const char *variable, const char *ours)
{
    const char *old = getenv(variable);
    size_t n = strlen(ours) + (old ? strlen(old) : 1) + 2;
    char *text = malloc(n);

    if (text) {
        snprintf(text, n, "%s;%s", ours, old ? old : ";");
        setenv(variable, text, 1);
        free(text);
    }
}

/* The folder of the Lua files and that of the module. */
static bool find_parts(char lua[PATH_MAX], char module[PATH_MAX])
{
    char folder[PATH_MAX], *slash;

    if (!find_folder(folder, sizeof folder) ||
        !print(lua, PATH_MAX, "%s/lua/moonrelay_core.so", folder)) {
        return false;
    }
    if (access(lua, R_OK) == 0) {
        *strrchr(lua, '/') = '\0';
        return print(module, PATH_MAX, "%s", lua);
    }
    slash = strrchr(folder, '/');
    if (!slash) {
        return false;
    }
    *slash = '\0';
    return find_module(folder, module, PATH_MAX) &&
           print(lua, PATH_MAX, "%s/share/lua/5.1", folder);
}

static bool set_paths(void)
{
    char lua[PATH_MAX], module[PATH_MAX], text[TEXT_MAX];

    if (!find_parts(lua, module)) {
        return false;
    }
    if (print(text, sizeof text, "%s/?.lua;%s/?/init.lua", lua, lua)) {
        put_before("LUA_PATH", text);
    }
    if (print(text, sizeof text, "%s/?.so", module)) {
        put_before("LUA_CPATH", text);
    }
    return true;
}

/* Without files busted looks in ./spec; whoever wants that writes a file .busted. */
static bool has_files(char *const *args)
{
    for (; *args; args++) {
        if ((*args)[0] != '-') {
            return true;
        }
    }
    return access(".busted", F_OK) == 0;
}

/* busted --lua=luajit hands its arguments to a shell, which takes them apart: where busted is a
 * script of Lua (it may be one of the shell that calls it), LuaJIT runs it without that detour. */
static bool is_lua(const char *file)
{
    FILE *f = fopen(file, "re");
    char line[256] = "";
    bool is_read = f && fgets(line, sizeof line, f);

    if (f) {
        fclose(f);
    }
    return is_read && strncmp(line, "#!", 2) == 0 && strstr(line, "lua");
}

static void run(char *const *args, const char *luajit, const char *busted)
{
    size_t n = 0, at = 0;
    const char **argv;

    while (args[n]) {
        n++;
    }
    argv = calloc(n + 4, sizeof *argv);
    if (!argv) {
        return;
    }
    argv[at++] = is_lua(busted) ? luajit : busted;
    argv[at++] = is_lua(busted) ? busted : "--lua=luajit";
    memcpy(argv + at, args, n * sizeof *argv);
    at += n;
    if (!has_files(args)) {
        argv[at++] = ".";
    }
    execv(argv[0], (char *const *)(uintptr_t)argv);
    free(argv);
}

void mr__busted_become(char *const *args, char *error, size_t cap)
{
    char luajit[PATH_MAX], busted[PATH_MAX];

    if (!find_program("luajit", luajit)) {
        print(error, cap, "test needs luajit; it is not installed (Debian: luajit)");
        return;
    }
    if (!find_program("busted", busted)) {
        print(error, cap, "test needs busted; it is not installed (Debian: lua-busted)");
        return;
    }
    if (!set_paths()) {
        print(error, cap, "test: moonrelay_core.so is neither beside this program nor installed");
        return;
    }
#ifdef MR_SANITIZER_RUNTIME
    /* LuaJIT is not instrumented and the module is; leaks of LuaJIT's own would be told. */
    setenv("LD_PRELOAD", MR_SANITIZER_RUNTIME, 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
#endif
    errno = ENOMEM;
    run(args, luajit, busted);
    print(error, cap, "test: cannot run busted: %s", strerror(errno));
}
