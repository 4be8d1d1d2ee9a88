/* SPDX-License-Identifier: MIT */
/*
 * See help.h. To add a command, add its page here and its line to `whole`.
 */
#include "cli/help.h"

#include <stddef.h>
#include <string.h>

static const char whole[] =
    "moonrelay: a programmable UDP relay that speaks noray's protocol\n"
    "\n"
    "  moonrelay [serve]          serve until TERM or INT\n"
    "  moonrelay check [CONFIG]   read settings, config and policies; listen nowhere\n"
    "  moonrelay settings [KEY]   each setting, its value, where it comes from,\n"
    "                             and whether a restart is needed to change it\n"
    "  moonrelay test [FILES]     busted specs of policies, *_spec.lua here and below;\n"
    "                             other arguments are busted's\n"
    "  moonrelay ticket --sub N   a ticket for the shipped policy `ticket`\n"
    "  moonrelay version          versions of moonrelay and its libraries\n"
    "  moonrelay help [COMMAND]\n"
    "\n"
    "Of a running one, over its control socket:\n"
    "\n"
    "  moonrelay status           what it listens on, how many it serves\n"
    "  moonrelay sessions         registered players\n"
    "  moonrelay relays           relays, their traffic\n"
    "  moonrelay policies         which code runs, how often, how long\n"
    "  moonrelay blocks           what is blocked, for how long, by whom\n"
    "  moonrelay kick ID          end a player's session\n"
    "  moonrelay close ID         end a relay\n"
    "  moonrelay block WHAT TIME  refuse an address, a net, ip:port or tags for a time\n"
    "  moonrelay unblock WHAT\n"
    "  moonrelay reload           read config and policies again; --check: only try\n"
    "  moonrelay rollback         back to the config and policies before\n"
    "  moonrelay drain [TIME]     no new games; stop when the running ones have ended\n"
    "  moonrelay call POLICY VERB [ARGS]\n"
    "                             a command that a policy offers\n"
    "\n"
    "  --config FILE    config file in Lua\n"
    "  --policy NAME    a policy in front of the chain; a path if it has a slash;\n"
    "                   may be repeated\n"
    "  --set KEY=VALUE  a setting; may be repeated\n"
    "  --watch          reload when a policy file changes (for development)\n"
    "  --control PATH   the control socket; else where the settings say\n"
    "  --json           print answers as JSON, errors as {\"error\": TEXT}\n"
    "\n"
    "Settings come from --set, then the environment (MOONRELAY_KEY, NORAY_KEY), .env in the\n"
    "working directory, the config file, and defaults. The log goes to stdout; what ends a\n"
    "start goes to stderr. When everything is open the line `ready command=... registrar=...\n"
    "http=... relay=...` is printed.\n"
    "\n"
    "Signals: TERM and INT let running games go on for drain_timeout (default 0s), stop\n"
    "accepting, finish what is queued and end with status 0; a second one ends at once. HUP\n"
    "reloads, USR1 drains.\n"
    "\n"
    "Exit status: 0 ended as asked, 1 could not run, bind or reach, 2 wrong usage, setting or\n"
    "script.\n";

#define ASKS                                                                     \
    "\n"                                                                         \
    "  --control PATH   its control socket; else where the settings say: the\n"  \
    "                   setting `control`, read as by serve (--config, --set)\n" \
    "  --json           print the answer as JSON, an error as {\"error\": TEXT}\n"

static const struct page {
    const char *command, *text;
} pages[] = {
    {"serve", whole},
    {"help", whole},
    {"version", "moonrelay version\n\nPrints the versions of moonrelay and its libraries.\n"},
    {"test", "moonrelay test [FILES]\n\n"
             "Runs busted under LuaJIT with relay.testing on its path: the specs named, else\n"
             "*_spec.lua here and below. Other arguments are busted's.\n"},
    {"check",
     "moonrelay check [CONFIG] [--config FILE] [--policy NAME] [--set KEY=VALUE]\n\n"
     "Reads settings and config and loads the policies as a start does; they may ask over\n"
     "HTTP and read files. Listens nowhere. Status 0 and `ok`, or 2 and a line that says what\n"
     "is wrong and where.\n"},
    {"settings",
     "moonrelay settings [KEY] [--config FILE] [--set KEY=VALUE]\n\n"
     "Prints each setting, its value, whether a reload (live) or a restart changes it, and\n"
     "where the value comes from.\n"},
    {"ticket",
     "moonrelay ticket --sub NAME [--game NAME] [--ttl 1h] [--key KEY | --key-env VAR]\n\n"
     "Prints a ticket for trying the shipped policy `ticket`: a JWT signed with HS256. A game\n"
     "sends it as the word ticket=... of register-host.\n\n"
     "  --sub NAME     whose it is\n"
     "  --game NAME    the claim `game`\n"
     "  --ttl TIME     how long it is good, like 30m; default 1h\n"
     "  --key-env VAR  which variable of the environment has the key; default TICKET_KEY\n"
     "  --key KEY      the key itself; others on this machine may see it\n"},
    {"status",
     "moonrelay status\n\nWhat a running daemon listens on and how many it serves.\n" ASKS},
    {"sessions", "moonrelay sessions\n\nRegistered players, the longest there first.\n" ASKS},
    {"relays", "moonrelay relays\n\nRelays with their traffic, the oldest first.\n" ASKS},
    {"policies", "moonrelay policies\n\n"
                 "The generation in use: which files, their hashes, and each hook's calls,\n"
                 "refusals, errors and time.\n" ASKS},
    {"kick",
     "moonrelay kick ID [REASON]\n\n"
     "Ends the session of that id or oid; its player is told `error session:REASON`.\n" ASKS},
    {"close", "moonrelay close ID [REASON]\n\nEnds a relay, like 51200.17.\n" ASKS},
    {"blocks", "moonrelay blocks\n\n"
               "Blocks in force, by hand and of policies, and the lists of policies.\n" ASKS},
    {"block",
     "moonrelay block WHAT TIME [REASON]\n\n"
     "Ends who matches and refuses them until the time is over. WHAT is an address, a net\n"
     "(10.0.0.0/8), ip:port, or tags that a policy gave (user=alice,team=red: all of\n"
     "them). TIME is like 30m, 2h or 1d.\n" ASKS},
    {"unblock", "moonrelay unblock WHAT\n\nTakes back a block of exactly that.\n" ASKS},
    {"reload", "moonrelay reload [--check]\n\n"
               "Reads the config file and the policies again and puts them in use when all of it\n"
               "is right; else nothing changes and the status is 2. Running games go on.\n\n"
               "  --check          only say whether it would work\n" ASKS},
    {"rollback", "moonrelay rollback\n\n"
                 "Puts the config and policies from before the last reload in use again, as they\n"
                 "were read then.\n" ASKS},
    {"drain",
     "moonrelay drain [TIME | --cancel]\n\n"
     "Who registers from now on cannot be joined (`draining`); running games go on and take\n"
     "players who come back. The daemon ends with status 0 when nobody is left: no relay is in\n"
     "use and no player from before is there; at the latest after TIME, like 30m. Players are\n"
     "told `notice draining:SECONDS`. Without TIME it is drain_timeout, or 30m when that is 0.\n"
     "Again: another time.\n\n"
     "  --cancel         take it back\n" ASKS},
    {"call", "moonrelay call POLICY VERB [ARGS]\n\n"
             "Runs commands.VERB of a policy with the arguments as texts and prints what it\n"
             "returns. `--` before arguments that begin with a dash.\n" ASKS},
};

const char *mr__help_page(const char *command)
{
    if (!command) {
        return whole;
    }
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        if (strcmp(pages[i].command, command) == 0) {
            return pages[i].text;
        }
    }
    return NULL;
}
