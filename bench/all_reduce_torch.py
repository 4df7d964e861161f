"""Seconds of one all_reduce of f32 with PyTorch's Gloo: all_reduce_torch.py RANKS BYTES OPERATIONS."""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, ranks, elements, operations, path):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=ranks)
    data = torch.ones(elements)
    dist.all_reduce(data)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(operations):
        dist.all_reduce(data)
    if rank == 0:
        print((time.perf_counter() - begin) / operations, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, size, operations = (int(word) for word in sys.argv[1:4])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(ranks, size // 4, operations, folder + "/meet"), nprocs=ranks)
