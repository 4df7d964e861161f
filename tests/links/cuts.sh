#!/usr/bin/env bash
# F9: ranks in two network namespaces whose cable is bad (frame_relay). Where it is cut, in both directions or in one, each
# side ends within its deadlines and names the other, neither goes on alone, and what they left on disk is resumed to the
# weights of a run that nobody disturbed. Where it only loses 30 % of the frames of one direction, or delays them by two
# seconds, the run ends with these weights by itself.
# Usage: cuts.sh PROGRAM SOURCE FRAME_RELAY     Status 77 (skipped) without root and ip.
set -euo pipefail
program=$1 source=$2 relay=$3
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "ip (Debian: iproute2) is not there"
ip netns add tenon_probe_$$ 2>/dev/null || skip "this system lets nobody make a network namespace"
ip netns del tenon_probe_$$
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TENON_TOKEN=cuts OMP_NUM_THREADS=1

cable() {  # cable NAME [frame_relay's loss and delay]: sets $a and $b, namespaces with 10.77.0.1 and .2; $pid_relay between
  a=tenon_$1_a_$$ b=tenon_$1_b_$$ between=tenon_$1_m_$$
  shift
  trap 'kill ${pid_relay:-} 2>/dev/null; for name in $a $b $between; do ip netns del $name 2>/dev/null; done' EXIT
  for name in $a $b $between; do ip netns add $name; done
  ip link add link_a netns $a type veth peer name from_a netns $between
  ip link add link_b netns $b type veth peer name from_b netns $between
  ip -n $a addr add 10.77.0.1/24 dev link_a
  ip -n $b addr add 10.77.0.2/24 dev link_b
  for end in $a:link_a $b:link_b $between:from_a $between:from_b $a:lo $b:lo; do ip -n ${end%:*} link set ${end#*:} up; done
  ip netns exec $a "$relay" whole link_a
  ip netns exec $b "$relay" whole link_b
  ip netns exec $between "$relay" from_a from_b "$@" &
  pid_relay=$!
}
configuration() {  # configuration RANKS SLOTS SAVE_EVERY DEADLINE
  cat >n.toml <<EOF
extends = ["$source/configs/base/gpt_tiny.toml"]
run = {name = "n", steps = $2, eval_every = 0, eval_batches = 1, log_every = 1, deadline = $4}
device.threads = 1
data = {path = "$source/data/text/tinyshakespeare.txt", context = 16, batch = $1}
model = {layers = 1, width = 16, heads = 2}
parallel.ranks = $1
sync = {type = "ddp"}
recovery = {type = "$([ $3 = 0 ] && echo none || echo full)"$([ $3 = 0 ] || echo ", every = $3")}
EOF
}
start() {  # start RANKS: the last rank in b, all others and the control plane in a
  ip netns exec $a "$program" launch -n $(($1 - 1)) --world $1 --first 0 --control 10.77.0.1:29500 -- \
    train n.toml --quiet --run-dir run >a.out 2>&1 &
  pid_a=$!
  ip netns exec $b "$program" launch -n 1 --world $1 --first $(($1 - 1)) --control 10.77.0.1:29500 -- \
    train n.toml --quiet --run-dir run >b.out 2>&1 &
  pid_b=$!
}
finish() {  # finish: waits for both sides; $status_a, $status_b
  status_a=0 status_b=0
  wait $pid_a || status_a=$?
  wait $pid_b || status_b=$?
}
hash() { sed -n 's/^  "weights_hash": "\(.*\)",\{0,1\}$/\1/p' "$1/latest/summary.json"; }
same_weights() {  # same_weights FOLDER: as a run of threads that nobody disturbs
  "$program" train n.toml --quiet --run-dir whole --set transport.type=thread --set recovery.type=none >whole.out 2>&1 ||
    { cat whole.out; return 1; }
  [ -n "$(hash "$1")" ] && [ "$(hash "$1")" = "$(hash whole)" ] ||
    { echo "the weights are $(hash "$1"), of the undisturbed run $(hash whole)"; return 1; }
}

bad() {  # bad NAME SLOTS LOSS DELAY: the run ends by itself
  cable $1 $3 $4
  configuration 2 $2 0 60
  start 2
  finish
  [ $status_a = 0 ] && [ $status_b = 0 ] || { echo "ended with $status_a and $status_b"; cat a.out b.out; return 1; }
  same_weights run
}
loss() { bad loss 20 30 0; }
delay() { bad delay 2 0 2000; }

cut() {  # cut NAME SIGNAL...: after the first checkpoint, the frames of a (USR1), of b (USR2) or of both come no more
  cable $1
  shift
  configuration 3 400 40 3
  start 3
  for ((i = 0; i < 600; ++i)); do
    compgen -G "run/1/checkpoints/step-*" >/dev/null && break
    sleep 0.05
  done
  for signal in "$@"; do kill -s $signal $pid_relay; done
  local began=$SECONDS
  finish
  # The deadline of a slot, then that of telling a control plane that may be out of reach.
  [ $((SECONDS - began)) -le 40 ] || { echo "the last side took $((SECONDS - began)) s to end"; return 1; }
  if [ $status_a = 0 ] || [ $status_b = 0 ]; then echo "one side went on alone: $status_a, $status_b"; cat a.out b.out; return 1; fi
  local missed="tenon train: .*rank.* within 3 s\|tenon train: .*nothing came from rank [0-9] for 3 s"
  # The control plane is in a. That a has given up may be known to b before b's own deadline where one direction is left; and
  # what b sent there last may run into the same deadline before b misses a rank.
  local told="tenon train: rank 2: the control plane .* is out of reach"
  [ $# = 2 ] || told+="\|tenon train: rank 2: the control plane .* is gone"
  for side in a b; do
    if grep -q "$missed" $side.out; then continue; fi
    [ $side = b ] && grep -q "$told" $side.out ||
      { echo "side $side names nothing that was out of reach:"; cat a.out b.out; return 1; }
  done
  # In the checkpoint are both sides or none: a run of threads goes on from it.
  "$program" train n.toml --quiet --run-dir run --resume --set transport.type=thread >resumed.out 2>&1 ||
    { cat resumed.out; return 1; }
  same_weights run
}
both_ways() { cut both USR1 USR2; }
from_a() { cut from_a USR1; }
from_b() { cut from_b USR2; }

# They mostly wait, each for its own deadlines.
cases="loss delay both_ways from_a from_b"
declare -A pids
for case in ${TENON_TEST_CASES:-$cases}; do
  mkdir "$folder/$case"
  (cd "$folder/$case" && $case >case.out 2>&1) &
  pids[$case]=$!
done
failures=0
for case in "${!pids[@]}"; do
  if wait ${pids[$case]}; then echo "$case: as expected"; else
    echo "$case: FAILED"
    cat "$folder/$case/case.out"
    failures=$((failures + 1))
  fi
done
[ $failures = 0 ] || { echo "$failures cases failed" >&2; exit 1; }
