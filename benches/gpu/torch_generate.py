"""Generation by a Llama with random weights in PyTorch on a GPU, once for each line of standard
input. Answers each line with a line of JSON.

    benches/gpu/torch_generate.py [--batch 16 --prompt 32 --new-tokens 200] [--sample]
        [--cache static]

Uses transformers' generate, greedy unless --sample is given, without an end token, so that every
sequence gets all new tokens. With --cache static, generate compiles the model, which takes minutes
the first time. Weights are random, bf16 by default, and attention is sdpa. The time includes
waiting for the GPU to finish.
"""

import argparse
import json
import sys
import time
import warnings

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--precision", default="bf16", choices=["f32", "tf32", "bf16"])
parser.add_argument("--sample", action="store_true", help="draw from the whole distribution")
parser.add_argument("--cache", default="dynamic", choices=["dynamic", "static"])
parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
for name, default in (("layers", 16), ("hidden", 2048), ("heads", 32), ("key-heads", 8), ("inner", 8192), ("vocab", 128256), ("batch", 16),
                      ("prompt", 32), ("new-tokens", 200)):
    parser.add_argument(f"--{name}", type=int, default=default)
args = parser.parse_args()
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"

config = LlamaConfig(vocab_size=args.vocab, hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=args.heads,
                     num_key_value_heads=args.key_heads, intermediate_size=args.inner, max_position_embeddings=args.prompt + args.new_tokens,
                     rms_norm_eps=1e-5, tie_word_embeddings=True, eos_token_id=None)
dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
with torch.device(args.device):
    model = LlamaForCausalLM._from_config(config, attn_implementation="sdpa", dtype=dtype).to(args.device).eval()
ids = torch.randint(0, args.vocab, (args.batch, args.prompt)).to(args.device)
settings = {"do_sample": args.sample, "min_new_tokens": args.new_tokens, "max_new_tokens": args.new_tokens, "pad_token_id": 0}
if args.sample:
    settings |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
if args.cache == "static":
    settings["cache_implementation"] = "static"


def generate():
    generated = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    if args.device == "cuda":
        torch.cuda.synchronize()
    return generated.shape[1] - args.prompt


for _ in sys.stdin:
    start = time.perf_counter()
    count = generate()
    seconds = time.perf_counter() - start
    assert count == args.new_tokens, count
    print(json.dumps({
        "peer": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "ms": round(1000 * seconds, 3),
        "tokens_per_second": round(args.batch * count / seconds, 1),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(),
        "reserved_memory_bytes": torch.cuda.max_memory_reserved(),
    }), flush=True)
