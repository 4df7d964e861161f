"""Median seconds of Gloo's all-reduce of --bytes between two processes on this machine (torch.distributed)."""
import argparse
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, port, options, result):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    data = torch.ones(options.bytes // 4)
    seconds = []
    for _ in range(options.operations):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(data, op=dist.ReduceOp.SUM)
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        result.value = statistics.median(seconds)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--operations", type=int, required=True)
    arguments = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    median = context.Value("d", -1.0)
    mp.spawn(work, args=(free_port, arguments, median), nprocs=2)
    print(median.value)
    sys.exit(0 if median.value > 0 else 1)
