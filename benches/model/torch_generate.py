"""Times greedy generation by a Llama model in PyTorch, and prints one line of JSON.

    $(tests/peers/venv) benches/model/torch_generate.py --model DIR --batch 16 --new-tokens 200

Versions: those in tests/peers/venv

DIR contains config.json, model.safetensors and tokenizer.json. The batch repeats one short prompt,
and the end token is ignored. Each of these variants runs once to warm up and then --repeats times,
in turn:
  generate        model.generate of transformers with default settings
  dynamic cache   a plain loop over model.forward with its growing cache
  static cache    the same loop with a cache of fixed size
  compiled        the static cache with model.forward compiled (only with --compile; needs a C++
                  compiler)
tokens_per_second is the speed of "generate"; "fastest" has the name and the speed of the fastest
variant. Variants must generate the same tokens; one that does not is left out.
"""

import argparse
import json
import statistics
import sys
import time

import torch
import transformers
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, StaticCache

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--prompt", default="Once upon a time")
for name, default in (("batch", 16), ("new-tokens", 200), ("threads", 2), ("repeats", 3)):
    parser.add_argument(f"--{name}", type=int, default=default)
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()

torch.set_num_threads(args.threads)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa").eval()
model.generation_config.eos_token_id = None
prompt = Tokenizer.from_file(f"{args.model}/tokenizer.json").encode(args.prompt).ids
ids = torch.tensor([prompt] * args.batch)


def by_generate():
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=args.new_tokens, pad_token_id=0)
    return out[:, ids.shape[1] :]


def by_loop(cache, forward):
    """Greedy decoding without a mask, since nothing is padded."""
    tokens, generated, position = ids, [], 0
    for _ in range(args.new_tokens):
        positions = torch.arange(position, position + tokens.shape[1])
        where = {"cache_position": positions} if TAKES_CACHE_POSITION else {}
        out = forward(input_ids=tokens, position_ids=positions[None], past_key_values=cache, use_cache=True, logits_to_keep=1, **where)
        position += tokens.shape[1]
        cache = out.past_key_values
        tokens = out.logits[:, -1].argmax(-1, keepdim=True)
        generated.append(tokens)
    return torch.cat(generated, 1)


def static_cache():
    return StaticCache(config=model.config, max_cache_len=ids.shape[1] + args.new_tokens)


TAKES_CACHE_POSITION = "cache_position" in model.forward.__code__.co_varnames
ways = {
    "generate": by_generate,
    "dynamic cache": lambda: by_loop(None, model.forward),
    "static cache": lambda: by_loop(static_cache(), model.forward),
}
if args.compile:
    compiled = torch.compile(model.forward)
    ways["compiled"] = lambda: by_loop(static_cache(), compiled)

speeds, first = {way: [] for way in ways}, None
with torch.inference_mode():
    for repeat in range(args.repeats + 1):
        for way in list(ways):
            start = time.perf_counter()
            tokens = ways[way]()
            seconds = time.perf_counter() - start
            assert tokens.shape == (args.batch, args.new_tokens), tokens.shape
            first = tokens if first is None else first
            if not torch.equal(tokens, first):
                # Different rounding leads to different tokens, so the work is not the same.
                del ways[way], speeds[way]
                print(f"{way} gives other tokens and is left out", file=sys.stderr)
                continue
            if repeat > 0:
                speeds[way].append(tokens.numel() / seconds)
speeds = {way: round(statistics.median(runs), 1) for way, runs in speeds.items()}
best = max(speeds, key=speeds.get)
print(json.dumps({
    "peer": f"torch {torch.__version__}, transformers {transformers.__version__}",
    "tokens_per_second": speeds["generate"],
    "fastest": {"way": best, "tokens_per_second": speeds[best]},
    "all": speeds,
}))
