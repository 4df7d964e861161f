#!/usr/bin/env bash
# Two real processes in two network namespaces, joined by a link that tbf shapes. First the bytes that the run counts are
# compared with those of the interface, which add protocol headers; then the time of a slot with that of the same run under
# the simulated clock, for ddp and diloco at three bandwidths.
# Usage: namespaces.sh PROGRAM SOURCE     Status 77 (skipped) without root, ip and tc.
set -euo pipefail
program=$1 source=$2
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null && command -v tc >/dev/null || skip "ip and tc (Debian: iproute2) are not there"
a=tenon_a_$$ b=tenon_b_$$
ip netns add $a 2>/dev/null || skip "this system lets nobody make a network namespace"
folder=$(mktemp -d)
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$folder"' EXIT
ip netns add $b
ip link add link_a netns $a type veth peer name link_b netns $b
ip -n $a addr add 10.77.0.1/24 dev link_a
ip -n $b addr add 10.77.0.2/24 dev link_b
for end in a b; do
  name=$([ $end = a ] && echo $a || echo $b)
  ip -n "$name" link set link_$end up
  ip -n "$name" link set lo up
  # By default one connection may put 4 MB into the queue of its interface, far more than a link holds: what the other side
  # waits for would stand behind it for up to a second.
  ip netns exec "$name" sh -c 'echo 65536 >/proc/sys/net/ipv4/tcp_limit_output_bytes' 2>/dev/null || true
  # A connection that was idle for a moment begins slowly again, at a speed that depends on its luck: up to a tenth of a slot.
  ip netns exec "$name" sh -c 'echo 0 >/proc/sys/net/ipv4/tcp_slow_start_after_idle' 2>/dev/null || true
done
export TENON_TOKEN=namespaces OMP_NUM_THREADS=1
cd "$folder"

shape() {  # shape MBIT: both directions
  ip netns exec $a tc qdisc replace dev link_a root tbf rate "$1mbit" burst 32kb latency 400ms 2>/dev/null &&
    ip netns exec $b tc qdisc replace dev link_b root tbf rate "$1mbit" burst 32kb latency 400ms
}
configuration() {  # configuration SYNC
  cat <<EOF
extends = ["$source/configs/base/gpt_tiny.toml"]
run = {name = "n", steps = 48, eval_every = 0, eval_batches = 1, log_every = 12, deadline = 60}
device.threads = 1
data = {path = "$source/data/text/tinyshakespeare.txt", context = 32, batch = 8}
model = {layers = 2, width = 96, heads = 4}
parallel.ranks = 2
recovery.type = "none"
sync = $1
EOF
}
real() {  # real FOLDER: a rank in each namespace
  ip netns exec $a "$program" launch -n 1 --world 2 --first 0 --control 10.77.0.1:29500 -- \
    train n.toml --quiet --run-dir "$1" >a.out 2>&1 &
  ip netns exec $b "$program" launch -n 1 --world 2 --first 1 --control 10.77.0.1:29500 -- \
    train n.toml --quiet --run-dir "$1" >b.out 2>&1 || { cat a.out b.out >&2; return 1; }
  wait $! || { cat a.out b.out >&2; return 1; }
}
field() { sed -n "s/^ *\"$2\": \([0-9.e+-]*\),\{0,1\}$/\1/p" "$1/1/summary.json" | head -n 1; }
# Seconds of a slot, by the run's clock, between the first and the last line of losses.
slot_seconds() {
  grep '"name": *"lr"' "$1/1/metrics.jsonl" | sed 's/.*"step": *\([0-9]*\).*"wall_s": *\([0-9.e+-]*\).*/\1 \2/' |
    awk 'NR == 1 {s = $1; w = $2} {t = $1; v = $2} END {printf "%.6f", (v - w) / (t - s)}'
}
compute_seconds() {  # of a slot, from the lines after the first
  grep '"name": *"compute_s"' "$1/1/metrics.jsonl" | sed 's/.*"step": *\([0-9]*\).*"value": *\([0-9.e+-]*\).*/\1 \2/' |
    awk 'NR == 1 {s = $1} NR > 1 {t = $1; c += $2} END {printf "%.6f", c / (t - s)}'
}
failures=0

# ---- bytes
configuration '{type = "ddp"}' >n.toml
bytes() { ip netns exec $a cat /sys/class/net/link_a/statistics/tx_bytes; }
before=$(bytes)
real bytes
counted=$(field bytes bytes_sent) seen=$(($(bytes) - before))
ratio=$(awk "BEGIN {printf \"%.4f\", $seen / $counted}")
echo "bytes: counted $counted, the interface $seen, ratio $ratio (expected 1.00 to 1.10)"
awk "BEGIN {exit !($ratio >= 1.0 && $ratio <= 1.10)}" || failures=$((failures + 1))

# ---- time. TCP and IP headers take 66 of 1514 bytes of a frame.
shape 100 || { echo "skipped: tbf is not there, so links cannot be shaped"; exit $([ $failures = 0 ] && echo 77 || echo 1); }
for sync in '{type = "ddp"}' '{type = "diloco", interval = 4}'; do
  configuration "$sync" >n.toml
  for mbit in ${TENON_TEST_MBIT:-50 100 200}; do
    shape $mbit
    best=""
    # Neighbours on the machine disturb real time: the nearest of up to six pairs counts.
    for try in 1 2 3 4 5 6; do
      real "real_$try" || exit 1
      compute=$(compute_seconds "real_$try")
      "$program" train n.toml --quiet --run-dir "virtual_$try" --set transport.type=thread \
        --set transport.clock.type=simulated --set transport.clock.compute_seconds="$compute" \
        --set transport.link.bandwidth="$(awk "BEGIN {printf \"%.1f\", $mbit * 1e6 / 8 * 1448 / 1514}")" >virtual.out 2>&1 ||
        { cat virtual.out >&2; exit 1; }
      line=$(awk -v r="$(slot_seconds "real_$try")" -v v="$(slot_seconds "virtual_$try")" -v c="$compute" \
        'BEGIN {printf "%.4f real %.1f ms, simulated %.1f ms, computing %.1f ms", v / r, 1e3 * r, 1e3 * v, 1e3 * c}')
      distance=$(awk -v q="${line%% *}" 'BEGIN {d = q - 1; printf "%.4f", d < 0 ? -d : d}')
      if [ -z "$best" ] || awk "BEGIN {exit !($distance < $best)}"; then best=$distance text=$line; fi
      rm -rf "real_$try" "virtual_$try"
      awk "BEGIN {exit !($best <= 0.10)}" && break
    done
    echo "$sync at $mbit Mbit/s: simulated / real = $text (expected 0.90 to 1.10)"
    awk "BEGIN {exit !($best <= 0.10)}" || failures=$((failures + 1))
  done
done
[ $failures = 0 ] || { echo "$failures comparisons out of bounds" >&2; exit 1; }
