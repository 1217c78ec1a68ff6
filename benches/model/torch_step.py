"""Times one training step, forward and backward, of a BERT classifier in PyTorch, and prints one
line of JSON.

    $(tests/peers/venv) benches/model/torch_step.py --layers 6 --hidden 384 --heads 12 --batch 32
        --tokens 64

Versions: those in tests/peers/venv

The model is transformers' BertForSequenceClassification with two labels, inner width 4 × hidden and
random f32 weights, in train mode with all dropout probabilities 0. All sequences have full length
and no mask is passed, which spares PyTorch masked attention. Gradients of all trainable weights are
computed (with --tuning lora: LoRA of rank 8 on query and value, and the classifier), and set to
None before each step; no optimizer runs. peak_memory_bytes is VmHWM of this process (on a GPU, the
peak of the device's allocator). start_memory_bytes is the same number after the imports, before the
model is created.
"""

import argparse
import json
import statistics
import time

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification


def peak_memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


parser = argparse.ArgumentParser()
parser.add_argument("--arch", default="bert", choices=["bert"])
for name, default in (("layers", 6), ("hidden", 384), ("heads", 12), ("batch", 32), ("tokens", 64), ("threads", 2), ("steps", 10),
                      ("warmup", 3), ("vocab", 30522)):
    parser.add_argument(f"--{name}", type=int, default=default)
parser.add_argument("--tuning", default="full", choices=["full", "lora"])
parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
parser.add_argument("--device", default="cpu")
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(0)
if args.tuning == "lora":
    from peft import LoraConfig, get_peft_model
start_memory = peak_memory()

config = BertConfig(vocab_size=args.vocab, hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=args.heads,
                    intermediate_size=4 * args.hidden, max_position_embeddings=max(512, args.tokens), num_labels=2,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = BertForSequenceClassification._from_config(config, attn_implementation=args.attention, dtype=torch.float32)
if args.tuning == "lora":
    model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["query", "value"]))
model.to(args.device).train()
ids = torch.randint(0, args.vocab, (args.batch, args.tokens), device=args.device)
labels = torch.randint(0, 2, (args.batch,), device=args.device)
on_gpu = ids.is_cuda


def step():
    model.zero_grad(set_to_none=True)
    model(input_ids=ids, labels=labels).loss.backward()
    if on_gpu:
        torch.cuda.synchronize()


for _ in range(args.warmup):
    step()
times = []
for _ in range(args.steps):
    start = time.perf_counter()
    step()
    times.append(1000 * (time.perf_counter() - start))
median = statistics.median(times)
print(json.dumps({
    "peer": f"torch {torch.__version__}, transformers {transformers.__version__}, {args.attention}",
    "step_ms": round(median, 3),
    "step_ms_all": [round(t, 3) for t in times],
    "examples_per_second": round(1000 * args.batch / median, 3),
    "peak_memory_bytes": torch.cuda.max_memory_allocated() if on_gpu else peak_memory(),
    "start_memory_bytes": start_memory,
}))
