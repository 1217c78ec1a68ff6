"""Training steps of a model with random weights in PyTorch on a GPU, one for each line of standard
input. Answers each line with a line of JSON.

    benches/gpu/torch_step.py --arch bert --mode none --precision bf16 --layers 12 --hidden 768
        --heads 12 --batch 256 --tokens 64

Architectures: bert is a classifier; gpt2, llama, qwen3 and mistral are language models with the
loss over all tokens.
Modes, if the package is installed: none (no privacy), hooks and ghost (Opacus; for bert, and for
the others with LoRA), fastdp (fastDP).
Precisions: f32, tf32 (matrix products) and bf16. The last is autocast over f32 weights, except with
LoRA, where weights are bf16 without autocast.
LoRA is peft's if installed, otherwise that of this file, with alpha = 16. As in undertone, a
classifier's head is trained too.

No dropout; AdamW (fused in non-private mode); sdpa attention (eager for Opacus). The time of a step
includes waiting for the GPU to finish. Peak memory is that of PyTorch's allocator, allocated and
reserved.
"""

import argparse
import contextlib
import importlib.util
import json
import sys
import time
import warnings

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

ALPHA = 16
RELATIVES = {"llama": "Llama", "qwen3": "Qwen3", "mistral": "Mistral"}

warnings.filterwarnings("ignore")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--arch", default="bert", choices=["bert", "gpt2", "llama", "qwen3", "mistral"])
parser.add_argument("--mode", default="none", choices=["none", "hooks", "ghost", "fastdp"])
parser.add_argument("--precision", default="tf32", choices=["f32", "tf32", "bf16"])
parser.add_argument("--tuning", default="full", choices=["full", "lora"])
parser.add_argument("--targets", default="qv", choices=["qv", "all"], help="layers with LoRA: query and value (gpt2: c_attn), or all of the blocks")
parser.add_argument("--lora-dtype", default="bf16", choices=["f32", "bf16"], help="of LoRA's weights if --precision is bf16")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
for name, default in (("layers", 12), ("hidden", 768), ("heads", 12), ("batch", 256), ("tokens", 64), ("vocab", 30522), ("rank", 8)):
    parser.add_argument(f"--{name}", type=int, default=default)
parser.add_argument("--key-heads", type=int, help="of llama [default: as many as heads]")
parser.add_argument("--head-width", type=int, help="of an attention head of llama and its relatives [default: hidden over heads]")
parser.add_argument("--inner", type=int, help="width of the feed-forward layers [default: four times hidden]")
args = parser.parse_args()
package = {"none": "torch", "fastdp": "fastDP"}.get(args.mode, "opacus")
if importlib.util.find_spec(package) is None:
    sys.exit(f"--mode {args.mode} needs the package {package}, which is not installed.")
if package == "opacus" and args.arch != "bert" and args.tuning != "lora":
    sys.exit(f"--mode {args.mode} is only for --arch bert and --tuning lora.")
causal = args.arch != "bert"
inner = args.inner or 4 * args.hidden
positions = max(512, args.tokens)
bf16_weights = args.tuning == "lora" and args.precision == "bf16"
dtype = torch.bfloat16 if bf16_weights else torch.float32
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = args.precision != "f32"
torch.backends.cudnn.allow_tf32 = args.precision != "f32"


class Lora(torch.nn.Module):
    """A frozen layer W with a trainable low-rank update: W x + scale · B A x, with B initialized to 0."""

    def __init__(self, base, inputs, outputs, rank):
        super().__init__()
        self.base, self.scale = base, ALPHA / rank
        self.lora_a = torch.nn.Linear(inputs, rank, bias=False, device=base.weight.device, dtype=base.weight.dtype)
        self.lora_b = torch.nn.Linear(rank, outputs, bias=False, device=base.weight.device, dtype=base.weight.dtype)
        torch.nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        low = self.lora_a(x.to(self.lora_a.weight.dtype))
        return self.base(x) + self.lora_b(self.scale * low).to(x.dtype)


def random_model():
    shared = {"vocab_size": args.vocab}
    if args.arch == "gpt2":
        kind, config = GPT2LMHeadModel, GPT2Config(
            n_embd=args.hidden, n_layer=args.layers, n_head=args.heads, n_inner=inner, n_positions=positions,
            resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0, **shared)
    else:
        shared |= {"hidden_size": args.hidden, "num_hidden_layers": args.layers, "num_attention_heads": args.heads, "intermediate_size": inner,
                   "max_position_embeddings": positions}
    if args.arch in RELATIVES:
        kind, config = getattr(transformers, RELATIVES[args.arch] + "ForCausalLM"), getattr(transformers, RELATIVES[args.arch] + "Config")(
            num_key_value_heads=args.key_heads or args.heads, rms_norm_eps=1e-5, tie_word_embeddings=True,
            head_dim=args.head_width or args.hidden // args.heads, **shared)
        config.sliding_window = None
    if args.arch == "bert":
        kind, config = BertForSequenceClassification, BertConfig(
            num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **shared)
    attention = "eager" if package == "opacus" else "sdpa"
    with torch.device(args.device):
        return kind._from_config(config, attn_implementation=attention, dtype=dtype).to(args.device)


def add_lora(model):
    """Adds LoRA to linear layers of the blocks. Only LoRA and a classifier's head are trained."""
    ends = {"bert": ("query", "value"), "gpt2": ("c_attn",)}.get(args.arch, ("q_proj", "v_proj"))
    chosen = {name: layer for name, layer in model.named_modules()
              if isinstance(layer, (torch.nn.Linear, Conv1D)) and any(part.isdigit() for part in name.split("."))
              and (args.targets == "all" or name.endswith(ends))}
    if importlib.util.find_spec("peft"):
        from peft import LoraConfig, inject_adapter_in_model

        inject_adapter_in_model(LoraConfig(r=args.rank, lora_alpha=ALPHA, target_modules=list(chosen), fan_in_fan_out=args.arch == "gpt2"), model)
    else:
        for name, layer in chosen.items():
            sizes = (layer.nx, layer.nf) if isinstance(layer, Conv1D) else (layer.in_features, layer.out_features)
            model.set_submodule(name, Lora(layer, *sizes, args.rank))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "lora_" in name or "pooler" in name or "classifier" in name
        if "lora_" in name and bf16_weights and args.lora_dtype == "f32":
            parameter.data = parameter.data.float()


model = random_model()
if args.tuning == "lora":
    add_lora(model)
model.train()
ids = torch.randint(0, args.vocab, (args.batch, args.tokens)).to(args.device)
labels = torch.randint(0, 2, (args.batch,)).to(args.device)
places = torch.arange(args.tokens).repeat(args.batch, 1).to(args.device)
segments = torch.zeros_like(ids)
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-6, weight_decay=0.01, fused=args.mode == "none")
criterion = torch.nn.CrossEntropyLoss()
if package == "opacus":
    from opacus import PrivacyEngine

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ids, labels), batch_size=args.batch)
    made = PrivacyEngine().make_private(module=model, optimizer=optimizer, data_loader=data, criterion=criterion, noise_multiplier=1.0,
                                        max_grad_norm=1.0, poisson_sampling=False, grad_sample_mode=args.mode)
    if args.mode == "ghost":
        model, optimizer, criterion, data = made
    else:
        model, optimizer, data = made
if args.mode == "fastdp":
    from fastDP import PrivacyEngine

    with contextlib.redirect_stdout(sys.stderr):  # where answers go, it prints remarks
        engine = PrivacyEngine(model, batch_size=args.batch, sample_size=1000 * args.batch, epochs=1, noise_multiplier=1.0)
        engine.attach(optimizer)
if args.compile:
    model = torch.compile(model)


def loss_of_batch():
    if causal and args.mode == "ghost":
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        return criterion(logits.reshape(-1, args.vocab), ids[:, 1:].reshape(-1), shape=(args.batch, args.tokens - 1))
    if causal:
        return model(input_ids=ids, labels=ids, use_cache=False).loss
    return criterion(model(input_ids=ids, position_ids=places, token_type_ids=segments).logits, labels)


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.precision == "bf16" and not bf16_weights):
        loss = loss_of_batch()
    loss.backward()
    optimizer.step()
    if args.device == "cuda":
        torch.cuda.synchronize()
    return loss


used = {"torch", "transformers", package} | ({"peft"} if args.tuning == "lora" else set())
versions = ", ".join(f"{name} {getattr(sys.modules[name], '__version__', '')}".strip() for name in sorted(used & set(sys.modules)))
for _ in sys.stdin:
    start = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        loss = step()
    milliseconds = 1000 * (time.perf_counter() - start)
    print(json.dumps({
        "peer": versions,
        "step_ms": round(milliseconds, 3),
        "examples": args.batch,
        "loss": round(loss.item(), 4),
        "trained": sum(p.numel() for p in trained),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(),
        "reserved_memory_bytes": torch.cuda.max_memory_reserved(),
    }), flush=True)
