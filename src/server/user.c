/* SPDX-License-Identifier: MIT */
/*
 * See user.h. The thread that starts the server.
 */
#include "server/user.h"

#include "engine/moonrelay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int mr__user_find(struct user *out, const struct settings_values *v, struct mr_server_error *err)
{
    int rc;

    *out = (struct user){.is_other = false};
    if (!*v->user) {
        return 0;
    }
    rc = mr__privileges_find(&out->who, v->user);
    if (rc < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, rc, "user = \"%.64s\": %s", v->user,
                                rc == -ENOENT ? "there is no such user" : mr_strerror(rc));
    }
    if (out->who.uid == 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, -EINVAL,
                                "user = \"%.64s\": this is root; expected another user, or nothing",
                                v->user);
    }
    if (mr__privileges_are_of(&out->who)) {
        return 0;
    }
    if (!mr__privileges_are_roots()) {
        return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, -EPERM,
                                "user = \"%.64s\": only root can become another user; start as "
                                "root, as %.64s, or leave it empty",
                                v->user, v->user);
    }
    out->is_other = true;
    return 0;
}

int mr__user_begin(const struct user *u, struct mr_server_error *err)
{
    int rc = u->is_other ? mr__privileges_gain_none() : 0;

    return rc < 0 ? mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc, "cannot set no_new_privs: %s",
                                     mr_strerror(rc))
                  : 0;
}

/* What goes wrong here is said when the socket is made. */
static void make_control_folder(const struct user *u, const struct settings_values *v,
                                const struct startup_sources *from)
{
    char path[MR_CONTROL_PATH_BYTES];
    int is_asked_for = mr__startup_control_path(path, v, from);

    if (is_asked_for >= 0) {
        (void)mr__privileges_make_folder(&u->who, path,
                                         is_asked_for ? MR_UNIX_FOLDER_NEW : MR_UNIX_FOLDER_OURS);
    }
}

int mr__user_step_down(const struct user *u, const struct banner *b,
                       const struct startup_sources *from, struct mr_server_error *err)
{
    const struct settings_values *v = b->settings;
    char text[512];
    int rc;

    if (!u->is_other) {
        return 0;
    }
    make_control_folder(u, v, from);
    rc = mr__privileges_step_down(&u->who);
    if (rc < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc, "cannot become user %s: %s",
                                u->who.name, mr_strerror(rc));
    }
    rc = *v->config ? mr__privileges_can_read(v->config) : 0;
    if (rc < 0) {
        snprintf(text, sizeof text,
                 "user %s cannot read the config file %.250s (%s): a reload will fail", u->who.name,
                 v->config, mr_strerror(rc));
        mr__banner_warn(b, text);
    }
    return 0;
}

int mr__user_give_up(const struct user *u, const struct banner *b, struct mr_server_error *err)
{
    int rc = u->is_other ? mr__privileges_give_up(&u->who) : 0;

    if (rc < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc,
                                "cannot give up root's rights for those of user %s: %s",
                                u->who.name, mr_strerror(rc));
    }
    if (u->is_other) {
        MR_LOG(b->log, MR_LOG_INFO, "start", "running as another user",
               LOG_STR("user", u->who.name));
    }
    return 0;
}
