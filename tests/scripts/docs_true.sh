#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Holds the pages to the program: every setting with its default, every metric, error code and drop
# reason is where a reader looks for it, and every link leads somewhere. Run by ctest.
set -euo pipefail

cd "$MR_SOURCE_DIR"
daemon=$MR_BINARY_DIR/moonrelay
work=$(mktemp -d)
pid=
mkfifo "$work/never"
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
failed=0
missing() {
  echo "# $*"
  failed=1
}

# Defaults as in the table: `value`, empty, or "(64 characters)" for the alphabets.
operating=$(cat scripts/README.md)
while read -r key value live _; do
  shown="\`$value\`"
  case "$key" in *_charset) shown="(${#value} characters)" ;; esac
  [ "$value" != "(empty)" ] || shown=empty
  if [ "$live" = later ]; then
    [[ $operating == *"without effect in this version"*"\`$key\`"* ]] ||
      missing "scripts/README.md: $key is not among the settings without effect"
  elif ! grep -qF "| \`$key\` | $shown | " <<<"$operating"; then
    missing "scripts/README.md: no row for $key with the default $shown"
  fi
done < <(env -i "$daemon" settings)
echo "ok every_setting_is_in_the_page_with_its_default"

(cd "$work" && exec env -i "$daemon" --set socket_port=0 --set http_port=0 --set udp_registrar_port=0 \
  --set udp_relay_ports=0+3 --set http_host=127.0.0.1 --set socket_host=127.0.0.1 \
  --set udp_host=127.0.0.1) >"$work/out" 2>"$work/err" &
pid=$!
for ((i = 0; i < 300; i++)); do
  grep -q '^ready ' "$work/out" && break
  kill -0 "$pid" 2>/dev/null || break
  read -r -t 0.1 <>"$work/never" || true # waits a tenth of a second
done
port=$(sed -n 's/^ready .*http=[^ ]*:\([0-9]*\).*/\1/p' "$work/out")
if [ -z "$port" ]; then
  cat "$work/out" "$work/err"
  exit 1
fi
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&3
cat <&3 >"$work/metrics"
exec 3>&-
kill -TERM "$pid"
wait "$pid" || missing "the daemon ended with $?"
pid=

families=$(sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' "$work/metrics")
[ -n "$families" ] || missing "no metrics"
for family in $families; do
  case "$family" in process_*) continue ;; esac
  grep -qE "\`${family}[\`{]" scripts/README.md || missing "scripts/README.md: no metric $family"
done
while read -r name; do
  grep -qx "$name" <<<"$families" || missing "scripts/README.md: $name is not on the page of metrics"
done < <(grep -oE '`(noray|moonrelay)_[a-z_]+[`{]' scripts/README.md lua/README.md | sed 's/.*`\([a-z_]*\)[`{]/\1/' |
  sort -u)
echo "ok every_metric_is_in_the_page_and_no_other"

reasons=$(sed -n 's/^moonrelay_drops_total{reason="\([^"]*\)".*/\1/p' "$work/metrics")
[ -n "$reasons" ] || missing "no drop reasons"
for reason in $reasons; do
  grep -qF "\`$reason\`" src/PROTOCOL.md || missing "src/PROTOCOL.md: no drop reason $reason"
done
codes=$(sed -n '/define MR_CODES/,/^$/s/.*X([A-Z_]*, "\([^"]*\)").*/\1/p' src/service/state.h)
[ -n "$codes" ] || missing "no error codes"
for code in $codes; do
  grep -qE "[\`:]$code\`" src/PROTOCOL.md || missing "src/PROTOCOL.md: no error code $code"
done
echo "ok every_error_code_and_drop_reason_is_in_the_protocol"

for script in scripts/*; do
  [ -x "$script" ] && [ -f "$script" ] || continue
  grep -qE "\`${script##*/}[\` ]" scripts/README.md || missing "scripts/README.md: no ${script}"
done
echo "ok every_script_is_in_the_page"

commands=$("$daemon" --help | sed -n 's/^  moonrelay \[*\([a-z]*\).*/\1/p')
[ -n "$commands" ] || missing "no commands"
for command in $commands; do
  case "$command" in serve | version | help) continue ;; esac
  grep -qE "\`(moonrelay )?$command[\` ]" <<<"$operating" || missing "scripts/README.md: no command $command"
done
echo "ok every_command_is_in_the_page"

while IFS=: read -r page link; do
  link=${link#*](}
  link=${link%%[)#]*}
  case "$link" in "" | http*) continue ;; esac
  [ -e "$(dirname "$page")/$link" ] || missing "$page: $link leads nowhere"
done < <(git ls-files '*.md' 2>/dev/null | xargs -r grep -oE '\]\([^)]*\)' /dev/null ||
  grep -oE '\]\([^)]*\)' README.md ./*/README.md src/*.md)
for command in scripts/run scripts/test; do
  grep -qx "$command" README.md || missing "README.md does not say $command"
done
echo "ok every_link_leads_somewhere"

# The table of threats: every test that it names is there, every setting has the default that it says.
threats=$(sed -n '/^## Threats/,/^## Building/p' src/README.md | grep '^|')
named=$(grep -oE '`[a-z0-9]+/[a-z0-9_]+:[^`]+`' <<<"$threats" | tr -d '`' | sort -u)
[ "$(wc -l <<<"$named")" -ge 100 ] || missing "src/README.md: the threats name hardly any test"
while IFS=: read -r place name; do
  case "$place" in
    e2e/* | spec/*) file=tests/${place}_spec.lua line="it(\"$name\"" ;;
    *) file=tests/unit/${place%%/*}/test_${place##*/}.c line="TEST($name)" ;;
  esac
  grep -qF "$line" "$file" 2>/dev/null || missing "src/README.md: no test $name in $file"
done <<<"$named"
defaults=$(env -i "$daemon" settings)
while IFS='|' read -r _ threat value settings _; do
  keys=$(grep -oE '`[a-z_]+`' <<<"$settings" | tr -d '`') || continue
  have=
  for key in $keys; do
    is=$(awk -v key="$key" '$1 == key { print $2 }' <<<"$defaults")
    [ -n "$is" ] || missing "src/README.md: no setting $key against$threat"
    have+=" $is "
  done
  for word in $(grep -oE '`([0-9][0-9a-z]*|off|paired)`' <<<"$value" | tr -d '`'); do
    [[ $have == *" $word "* ]] || missing "src/README.md: $word is no default of $keys, against$threat"
  done
done <<<"$threats"
echo "ok every_threat_has_its_test_and_its_setting"

exit "$failed"
