/* SPDX-License-Identifier: MIT */
/*
 * relay.read and relay.http: the world outside, through struct script_host. Control thread
 * only. Both wait (wait.h). Start reading at on_read() and on_http().
 *
 * Everything that goes out is checked here, so that no host has to: a header that holds a
 * line's end would be two headers.
 */
#include "script/argument.h"
#include "script/config_entry.h"
#include "script/errand.h"
#include "script/generation.h"
#include "script/json.h"
#include "script/module_part.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

enum {
    READ_BYTES_MAX = 16 << 20,
    PATH_BYTES_MAX = 4096,
    URL_BYTES_MAX = 8192,
    METHOD_BYTES_MAX = 32,
    HEADERS_MAX = 32,
    HEADER_NAME_BYTES_MAX = 128,
    HEADER_VALUE_BYTES_MAX = 8192,
    BODY_BYTES_MAX = 1 << 20,
    RESPONSE_BYTES_MAX = 16 << 20,
    RESPONSE_BYTES_PRESET = 1 << 20,
    TIMEOUT_S_MAX = 60,
    TIMEOUT_S_PRESET = 5,
};

static int unavailable(lua_State *L)
{
    return mr__module_fail(L, "not available", "unavailable");
}

/* ---- read ------------------------------------------------------------------------------------ */

static const char *file_code(int rc)
{
    switch (rc) {
    case -ENOENT:
    case -ENOTDIR:
        return "not-found";
    case -EXDEV:
        return "outside";
    case -EFBIG:
        return "too-large";
    case -EACCES:
    case -EPERM:
        return "denied";
    default:
        return "failed";
    }
}

static int push_file(lua_State *L, void *user)
{
    const struct host_file *f = user;

    if (f->rc != 0) {
        return mr__module_fail(L, f->message, file_code(f->rc));
    }
    lua_pushlstring(L, f->text.n > 0 ? f->text.s : "", f->text.n);
    return 1;
}

static void on_file(void *arg, const struct host_file *f)
{
    mr__wait_end(mr__errand_end(arg), push_file, (void *)(uintptr_t)f);
}

/* Where a policy's files are: beside the config, without one in the working directory. */
static struct str folder_of(const struct policy *p)
{
    const struct config *c = p->generation->sources->config;
    const char *folder = c ? mr__config_folder(c) : "";

    return (struct str){folder, strlen(folder)};
}

static int on_read(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    const struct script_host *host = &p->generation->opts.host;
    struct str path = mr__argument_bounded(L, 1, "relay.read", "path", PATH_BYTES_MAX);
    struct errand *e;

    if (path.n == 0 || memchr(path.s, '\0', path.n)) {
        return mr__argument_error(L, "relay.read", "path", 1,
                                  "the path of a file below the config's folder is expected");
    }
    if (!host->read) {
        return unavailable(L);
    }
    e = mr__errand_begin(L, host, "relay.read");
    return mr__errand_go(L, e,
                         host->read(host->user, folder_of(p), path, READ_BYTES_MAX, on_file, e));
}

/* ---- http: the response ---------------------------------------------------------------------- */

/* A header that came several times is joined, as RFC 9110 allows. */
static void add_header(lua_State *L, const struct host_header *h)
{
    lua_pushlstring(L, h->name.s, h->name.n);
    lua_pushvalue(L, -1);
    lua_rawget(L, -3); /* stack: headers name old? */
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_pushlstring(L, h->value.n > 0 ? h->value.s : "", h->value.n);
    } else {
        lua_pushliteral(L, ", ");
        lua_pushlstring(L, h->value.n > 0 ? h->value.s : "", h->value.n);
        lua_concat(L, 3);
    }
    lua_rawset(L, -3);
}

static int push_response(lua_State *L, void *user)
{
    const struct host_http_response *r = user;

    if (r->rc != 0) {
        return mr__module_fail(L, r->message, r->code);
    }
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, r->status);
    lua_setfield(L, -2, "status");
    lua_createtable(L, 0, (int)r->n_headers);
    for (size_t i = 0; i < r->n_headers; i++) {
        add_header(L, &r->headers[i]);
    }
    lua_setfield(L, -2, "headers");
    lua_pushlstring(L, r->body.n > 0 ? r->body.s : "", r->body.n);
    lua_setfield(L, -2, "body");
    return 1;
}

static void on_response(void *arg, const struct host_http_response *r)
{
    mr__wait_end(mr__errand_end(arg), push_response, (void *)(uintptr_t)r);
}

/* ---- http: the request ----------------------------------------------------------------------- */

static bool is_token(struct str s)
{
    static const char letters[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

    return s.n > 0 && strspn(s.s, letters) == s.n;
}

static bool is_named(struct str name, const char *other)
{
    return name.n == strlen(other) && strncasecmp(name.s, other, name.n) == 0;
}

/* No control characters but the tab: what ends a line would begin another header. */
static bool is_header_value(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.s[i];

        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return s.n <= HEADER_VALUE_BYTES_MAX;
}

static bool is_url(struct str s)
{
    size_t scheme = s.n > 7 && strncasecmp(s.s, "http://", 7) == 0    ? 7
                    : s.n > 8 && strncasecmp(s.s, "https://", 8) == 0 ? 8
                                                                      : 0;

    for (size_t i = 0; i < s.n; i++) {
        if (s.s[i] < 0x21 || s.s[i] > 0x7e) {
            return false;
        }
    }
    return scheme > 0 && s.n <= URL_BYTES_MAX && s.s[scheme] != '/';
}

struct request {
    struct host_http_request http;
    struct host_header headers[HEADERS_MAX + 1];
};

static void check_url(lua_State *L, struct request *r)
{
    mr__argument_field(L, 1, "url");
    r->http.url = mr__argument_text(L, -1, "relay.http", "url");
    if (!is_url(r->http.url)) {
        mr__argument_error(L, "relay.http", "url", -1,
                           "http:// or https:// and visible ASCII are expected");
    }
}

/* The header at the top: name below value. The name stays on the stack; a number became text there,
 * so the value is put back into the table. */
static void check_header(lua_State *L, struct request *r, int table)
{
    struct host_header *h = &r->headers[r->http.n_headers];

    if (r->http.n_headers == HEADERS_MAX) {
        luaL_error(L, "relay.http: headers are more than %d", HEADERS_MAX);
    }
    if (lua_type(L, -2) != LUA_TSTRING) {
        luaL_error(L, "relay.http: headers has a key that is a %s (names are expected)",
                   luaL_typename(L, -2));
    }
    h->name.s = lua_tolstring(L, -2, &h->name.n);
    if (!is_token(h->name) || h->name.n > HEADER_NAME_BYTES_MAX) {
        luaL_error(
            L,
            "relay.http: headers has a name that is no token (letters, digits and - are expected)");
    }
    if (is_named(h->name, "content-length") || is_named(h->name, "transfer-encoding")) {
        luaL_error(L, "relay.http: headers.%s is made by the relay", h->name.s);
    }
    if (lua_type(L, -1) == LUA_TNUMBER) {
        lua_pushvalue(L, -2);
        lua_pushstring(L, lua_tostring(L, -2));
        lua_rawset(L, table);
        lua_pushvalue(L, -2);
        lua_rawget(L, table);
        lua_replace(L, -2);
    }
    if (lua_type(L, -1) != LUA_TSTRING) {
        luaL_error(L, "relay.http: headers.%s is a %s (a text or number is expected)", h->name.s,
                   luaL_typename(L, -1));
    }
    h->value.s = lua_tolstring(L, -1, &h->value.n);
    if (!is_header_value(h->value)) {
        luaL_error(L, "relay.http: headers.%s holds a control character or more than %d bytes",
                   h->name.s, HEADER_VALUE_BYTES_MAX);
    }
    r->http.n_headers++;
}

/* The strings of a copy are read, which stays on the stack: numbers become text there. */
static void check_headers(lua_State *L, struct request *r)
{
    int copy;

    mr__argument_field(L, 1, "headers");
    if (lua_isnil(L, -1)) {
        return;
    }
    if (!lua_istable(L, -1) || lua_getmetatable(L, -1)) {
        mr__argument_error(L, "relay.http", "headers", -1, "a plain table is expected");
    }
    lua_newtable(L);
    copy = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, copy - 1) != 0; lua_pop(L, 1)) {
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, copy);
    }
    for (lua_pushnil(L); lua_next(L, copy) != 0; lua_pop(L, 1)) {
        check_header(L, r, copy);
    }
}

static bool has_header(const struct request *r, const char *name)
{
    for (size_t i = 0; i < r->http.n_headers; i++) {
        if (is_named(r->headers[i].name, name)) {
            return true;
        }
    }
    return false;
}

/* `body`, or `json` as text. */
static void check_body(lua_State *L, struct request *r)
{
    static const struct host_header is_json = {{"Content-Type", 12}, {"application/json", 16}};

    mr__argument_field(L, 1, "json");
    mr__argument_field(L, 1, "body");
    if (!lua_isnil(L, -1) && !lua_isnil(L, -2)) {
        luaL_error(L, "relay.http: body and json are both there (one is expected)");
    }
    if (!lua_isnil(L, -1)) {
        r->http.body = mr__argument_bounded(L, -1, "relay.http", "body", BODY_BYTES_MAX);
    } else if (!lua_isnil(L, -2)) {
        mr__json_push(L, lua_gettop(L) - 1);
        r->http.body.s = lua_tolstring(L, -1, &r->http.body.n);
        if (!has_header(r, "content-type")) {
            r->headers[r->http.n_headers++] = is_json;
        }
    }
    r->http.method = r->http.body.s ? (struct str){"POST", 4} : (struct str){"GET", 3};
}

static void check_method(lua_State *L, struct request *r)
{
    mr__argument_field(L, 1, "method");
    if (lua_isnil(L, -1)) {
        return;
    }
    r->http.method = mr__argument_text(L, -1, "relay.http", "method");
    if (!is_token(r->http.method) || r->http.method.n > METHOD_BYTES_MAX ||
        is_named(r->http.method, "connect")) {
        mr__argument_error(L, "relay.http", "method", -1, "as GET, POST or PUT is expected");
    }
}

static double check_option(lua_State *L, const char *name, double preset, double min, double max,
                           const char *expected)
{
    mr__argument_field(L, 1, name);
    return lua_isnil(L, -1) ? preset
                            : mr__argument_number(L, -1, "relay.http", name, min, max, expected);
}

static int on_http(lua_State *L)
{
    static const char *const names[] = {"url",  "method",  "headers",   "body",
                                        "json", "timeout", "max_bytes", NULL};
    struct policy *p = mr__module_policy(L);
    const struct script_host *host = &p->generation->opts.host;
    struct request r = {0};
    struct errand *e;

    lua_settop(L, 1);
    mr__argument_options(L, 1, "relay.http", names);
    check_url(L, &r);
    check_headers(L, &r);
    check_body(L, &r);
    check_method(L, &r);
    r.http.headers = r.headers;
    r.http.lookup = mr__run_is_lookup(L) ? MR_LOOKUP_BUILT_IN : 0;
    r.http.timeout_ns = (uint64_t)(check_option(L, "timeout", TIMEOUT_S_PRESET, 1e-3, TIMEOUT_S_MAX,
                                                "seconds from 0.001 to 60 are expected") *
                                   1e9);
    r.http.max_bytes =
        (size_t)check_option(L, "max_bytes", RESPONSE_BYTES_PRESET, 0, RESPONSE_BYTES_MAX,
                             "bytes from 0 to 16777216 are expected");
    if (!host->http) {
        return unavailable(L);
    }
    e = mr__errand_begin(L, host, "relay.http");
    return mr__errand_go(L, e, host->http(host->user, &r.http, on_response, e));
}

void mr__module_open_outside(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {{"read", on_read}, {"http", on_http}, {NULL, NULL}};

    mr__module_add(L, functions, p);
}
