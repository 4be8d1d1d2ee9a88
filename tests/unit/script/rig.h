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
};

void rig_start(struct rig *r);
void rig_end(struct rig *r);

/* Writes a file of the folder. */
void rig_file(struct rig *r, const char *name, const char *text);
/* Loads a config of this text; 0 or a negative errno with r->err. Replaces what was loaded. */
int rig_load(struct rig *r, const char *config);
/* Creates policies and loads r->config (or none) with r->load. */
int rig_load_policies(struct rig *r);
/* Loads one policy, p.lua, with this text, alone in the chain. */
int rig_load_policy(struct rig *r, const char *text);

/* Asks and renders the answer: "none", "admit tags{a=1} slots{k=2} ttl=5", "refuse reason by
 * policy", "failed policy-error by policy". Valid until the next call. */
const char *rig_ask(struct rig *r, const struct hook_event *ev);
/* An event with the usual fields; its pointers are static. */
struct hook_event rig_event(enum hook hook);

struct str rig_str(const char *s);

#endif
