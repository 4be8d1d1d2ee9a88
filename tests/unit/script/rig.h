/* SPDX-License-Identifier: MIT */
/*
 * What the script tests share: policies written to a folder of their own and loaded as
 * an operator's are, events to ask about, answers as text. Start reading at rig_start().
 */
#ifndef MR_TESTS_SCRIPT_RIG_H
#define MR_TESTS_SCRIPT_RIG_H

#include "script/policies.h"

struct rig {
    char folder[64];
    char log_text[65536]; /* what was logged, as text lines */
    size_t log_n;
    struct log log;
    struct config *config;
    struct policies *policies;
    struct policies_options opts;
    struct policies_load load;
    int rc; /* of the last load */
    struct script_error err;
    char *environment[8];
    uint64_t now_ns; /* the policies' clock, unless the test sets another in opts */
};

/* A request and its answer. */
struct rig_request {
    struct hook_request request;
    unsigned calls;  /* of done */
    char text[8192]; /* the answer, as of rig_ask(); "": none yet */
    size_t n;
};

void rig_start(struct rig *r);
void rig_end(struct rig *r);

/* Writes a file of the folder. */
void rig_file(struct rig *r, const char *name, const char *text);
/* Loads a config of this text; 0 or a negative errno with r->err. Replaces what was loaded. */
int rig_load(struct rig *r, const char *config);
/* The same without destroying what is there: what a reload does. It may wait: then r->rc is
 * -EINPROGRESS until it is done. */
int rig_reload(struct rig *r, const char *config);
/* Creates policies and loads r->config (or none) with r->load. */
int rig_load_policies(struct rig *r);
/* Loads one policy, p.lua, with this text, alone in the chain. */
int rig_load_policy(struct rig *r, const char *text);

/* Asks and renders the answer: "none", "admit tags{a=1} slots{k=2} ttl=5", "admit 10.0.0.5:0",
 * "refuse reason by policy", "refuse code by policy: message", "failed policy-error by policy".
 * Valid until the next call. */
const char *rig_ask(struct rig *r, const struct hook_event *ev);
/* Asks; returns the answer so far, which is "" when a hook waits. req stays where it is. */
const char *rig_start_asking(struct rig *r, struct rig_request *req, const struct hook_event *ev);
/* Lets time pass, everything happening when it is due. */
void rig_advance(struct rig *r, double seconds);
/* Calls a command; the text it gave, or "rc: text". "": it waits, and *answer is filled later. */
struct rig_answer {
    unsigned calls;
    char text[8192];
};
const char *rig_call(struct rig *r, struct rig_answer *answer, const char *policy, const char *verb,
                     const char *arg);
/* Overwrites what the last events pointed to, as their owner may once he was answered. */
void rig_spoil_event(void);
/* An event with the usual fields; its pointers are static. */
struct hook_event rig_event(enum hook hook);

struct str rig_str(const char *s);

#endif
