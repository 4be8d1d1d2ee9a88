# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Sourced by scripts/check and scripts/long: named steps that all run, also after a failure, and a
# summary at the end.
#
#     step "format" scripts/format --check
#     steps_end            # prints the summary; its status is that of the steps

steps_failed=()
steps_lines=()

step() {
  local name=$1 start=$SECONDS result=ok
  shift
  printf '== %s\n' "$name"
  # Not `if "$@"`: that would switch errexit off inside the step when it is a function.
  set +e
  (
    set -e
    "$@"
  )
  local rc=$?
  set -e
  if [ "$rc" -ne 0 ]; then
    result="FAILED ($rc)"
    steps_failed+=("$name")
  fi
  steps_lines+=("$(printf '%-34s %-12s %4d s' "$name" "$result" $((SECONDS - start)))")
}

steps_end() {
  printf '\n== summary\n'
  printf '%s\n' "${steps_lines[@]}"
  if [ ${#steps_failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${steps_failed[*]}"
    return 1
  fi
  echo "all ${#steps_lines[@]} steps passed"
}
