"""One rank of torch.distributed's gloo: answers questions, one JSON line each, as src/gloo.ts asks them."""
import json
import os
import sys
import time

import torch
import torch.distributed as group

rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
torch.set_num_threads(1)
group.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)


def hello(question):
    values = torch.full((1000,), float(rank + 1))
    group.all_reduce(values)
    if not torch.equal(values, torch.full((1000,), size * (size + 1) / 2)):
        return {"error": "its sums are wrong"}
    return {"version": torch.__version__}


def reduce(question):
    values = torch.ones(question["numbers"])
    group.barrier()
    start = time.perf_counter()
    group.all_reduce(values)
    return {"milliseconds": 1000 * (time.perf_counter() - start)}


for line in sys.stdin:
    question = json.loads(line)
    try:
        answer = {"hello": hello, "reduce": reduce}[question["ask"]](question)
    except Exception as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
