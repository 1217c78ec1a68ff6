"""Training steps of a BERT classifier in PyTorch on a GPU, one for each line of standard input. Answers each with a line of JSON.

    benches/gpu/torch_step.py --mode none --precision bf16 --layers 12 --hidden 768 --heads 12 --batch 256 --tokens 64

Modes: none (no privacy), hooks and ghost (Opacus, where it is installed). Precisions: f32, tf32 (matrix products), bf16 (autocast).
Random weights, no dropout, AdamW (fused), attention by sdpa. A step ends when the GPU is done.
"""

import argparse
import json
import sys
import time
import warnings

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification

warnings.filterwarnings("ignore")
parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="none", choices=["none", "hooks", "ghost"])
parser.add_argument("--precision", default="tf32", choices=["f32", "tf32", "bf16"])
parser.add_argument("--tuning", default="full", choices=["full", "lora"])
parser.add_argument("--compile", action="store_true")
for name, default in (("layers", 12), ("hidden", 768), ("heads", 12), ("batch", 256), ("tokens", 64), ("vocab", 30522)):
    parser.add_argument(f"--{name}", type=int, default=default)
args = parser.parse_args()
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = args.precision != "f32"
torch.backends.cudnn.allow_tf32 = args.precision != "f32"

config = BertConfig(vocab_size=args.vocab, hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=args.heads,
                    intermediate_size=4 * args.hidden, max_position_embeddings=max(512, args.tokens), num_labels=2,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
attention = "sdpa" if args.mode == "none" else "eager"
model = BertForSequenceClassification._from_config(config, attn_implementation=attention, dtype=torch.float32).cuda()
if args.tuning == "lora":
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["query", "value"]))
model.train()
ids = torch.randint(0, args.vocab, (args.batch, args.tokens)).cuda()
labels = torch.randint(0, 2, (args.batch,)).cuda()
positions = torch.arange(args.tokens).repeat(args.batch, 1).cuda()
segments = torch.zeros_like(ids)
trained = [p for p in model.parameters() if p.requires_grad]
optimiser = torch.optim.AdamW(trained, lr=1e-6, weight_decay=0.01, fused=args.mode == "none")
criterion = torch.nn.CrossEntropyLoss()
version = ""
if args.mode != "none":
    import opacus
    from opacus import PrivacyEngine

    version = f", opacus {opacus.__version__}"
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ids, labels), batch_size=args.batch)
    made = PrivacyEngine().make_private(module=model, optimizer=optimiser, data_loader=data, criterion=criterion, noise_multiplier=1.0,
                                        max_grad_norm=1.0, poisson_sampling=False, grad_sample_mode=args.mode)
    if args.mode == "ghost":
        model, optimiser, criterion, data = made
    else:
        model, optimiser, data = made
if args.compile:
    model = torch.compile(model)


def step():
    optimiser.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
        logits = model(input_ids=ids, position_ids=positions, token_type_ids=segments).logits
        loss = criterion(logits, labels)
    loss.backward()
    optimiser.step()
    torch.cuda.synchronize()


for _ in sys.stdin:
    start = time.perf_counter()
    step()
    milliseconds = 1000 * (time.perf_counter() - start)
    print(json.dumps({
        "peer": f"torch {torch.__version__}, transformers {transformers.__version__}{version}",
        "step_ms": round(milliseconds, 3),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(),
    }), flush=True)
