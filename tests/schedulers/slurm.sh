#!/usr/bin/env bash
# Runs a program of tests where it may be a cluster: in name spaces with a loopback, a host name and processes of their own,
# and a folder for temporary files in memory. All of it ends with the program, whatever ends it: nothing else of this
# machine sees a daemon, a port or a file.
# Usage: slurm.sh PROGRAM [WORD...]     Status 77 (skipped) without root, Slurm, munge and name spaces.
set -euo pipefail
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "Slurm's daemons need root"
for program in munged slurmctld slurmd srun sbatch ip; do
  PATH=$PATH:/usr/sbin:/sbin command -v $program >/dev/null ||
    skip "$program is not there (Debian: munge slurmctld slurmd slurm-client iproute2)"
done
own=(unshare --mount --pid --net --uts --fork --kill-child --mount-proc)
"${own[@]}" true 2>/dev/null || skip "this system lets nobody make name spaces"
export TMPDIR=/mnt HOME=/mnt/home PATH=$PATH:/usr/sbin:/sbin
unset XDG_STATE_HOME
# Without an interface beside the loopback the system resolves no names, and Open MPI's mpirun does not start.
# shellcheck disable=SC2016 # expanded by the inner shell
exec "${own[@]}" bash -euc '
  ip link set lo up
  ip link add eth0 type veth peer name eth1
  ip addr add 10.0.0.1/24 dev eth0
  ip link set eth0 up
  ip link set eth1 up
  hostname node0
  mount -t tmpfs -o mode=755 tmpfs /mnt
  mkdir /mnt/home
  printf "127.0.0.1 localhost node0 node1 node2\n" >/mnt/hosts
  mount --bind /mnt/hosts /etc/hosts
  exec "$@"' slurm "$@"
