"""Times one training step (forward, backward and AdamW) of a BERT classifier in PyTorch, without
privacy or with Opacus. Prints one line of JSON.

    $(tests/peers/venv) benches/private/torch_step.py --mode hooks --layers 6 --hidden 384
        --heads 12 --batch 32 --tokens 64

With --on-request, it takes a step for each line of standard input instead, and answers each with a
line of JSON.

Modes: none (no privacy), hooks (Opacus' GradSampleModule), ghost (Opacus' fast gradient clipping).
Versions: those in tests/peers/venv.

The model is that of benches/model/torch_step.py: random f32 weights, no dropout, no mask. Position
embeddings are looked up separately for each example, as Opacus requires. The noise multiplier is 1,
with flat clipping to norm 1 and Opacus' default noise generator. A step is forward, backward,
clipping, noise and AdamW.
"""

import argparse
import json
import statistics
import sys
import time
import warnings

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification

warnings.filterwarnings("ignore")


def peak_memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="none", choices=["none", "hooks", "ghost"])
parser.add_argument("--tuning", default="full", choices=["full", "lora"])
parser.add_argument("--attention", default="eager", choices=["sdpa", "eager"])
for name, default in (("layers", 6), ("hidden", 384), ("heads", 12), ("batch", 32), ("tokens", 64), ("threads", 2), ("steps", 6),
                      ("warmup", 2), ("vocab", 30522)):
    parser.add_argument(f"--{name}", type=int, default=default)
parser.add_argument("--on-request", action="store_true")
args = parser.parse_args()
torch.set_num_threads(args.threads)
torch.manual_seed(0)

config = BertConfig(vocab_size=args.vocab, hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=args.heads,
                    intermediate_size=4 * args.hidden, max_position_embeddings=max(512, args.tokens), num_labels=2,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = BertForSequenceClassification._from_config(config, attn_implementation=args.attention, dtype=torch.float32)
if args.tuning == "lora":
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["query", "value"]))
model.train()
ids = torch.randint(0, args.vocab, (args.batch, args.tokens))
labels = torch.randint(0, 2, (args.batch,))
positions = torch.arange(args.tokens).repeat(args.batch, 1)
segments = torch.zeros_like(ids)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6, weight_decay=0.01)
criterion = torch.nn.CrossEntropyLoss()
version = ""
if args.mode != "none":
    import opacus
    from opacus import PrivacyEngine

    version = f", opacus {opacus.__version__}"
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ids, labels), batch_size=args.batch)
    made = PrivacyEngine().make_private(module=model, optimizer=optimizer, data_loader=data, criterion=criterion, noise_multiplier=1.0,
                                        max_grad_norm=1.0, poisson_sampling=False,
                                        grad_sample_mode={"hooks": "hooks", "ghost": "ghost"}[args.mode])
    if args.mode == "ghost":
        model, optimizer, criterion, data = made
    else:
        model, optimizer, data = made


def step():
    optimizer.zero_grad(set_to_none=True)
    logits = model(input_ids=ids, position_ids=positions, token_type_ids=segments).logits
    loss = criterion(logits, labels)
    loss.backward()
    optimizer.step()


def timed():
    start = time.perf_counter()
    step()
    return 1000 * (time.perf_counter() - start)


def say(milliseconds):
    print(json.dumps({
        "peer": f"torch {torch.__version__}, transformers {transformers.__version__}{version}, {args.mode}, {args.attention}",
        "step_ms": round(milliseconds, 3),
        "examples_per_second": round(1000 * args.batch / milliseconds, 3),
        "peak_memory_bytes": peak_memory(),
    }), flush=True)


if args.on_request:
    for _ in sys.stdin:
        say(timed())
else:
    for _ in range(args.warmup):
        step()
    say(statistics.median(timed() for _ in range(args.steps)))
