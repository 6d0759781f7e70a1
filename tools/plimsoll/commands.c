/* commands.c - the table of sub-commands: one row drives dispatch, help and completion. */
#include "tools/plimsoll/cli.h"

#include <string.h>

static const struct pl_command commands[] = {
    {
        .name = "train",
        .summary = "plan a job, judge it, train it",
        .synopsis = "CONFIG.yaml [key=value ... | --key value ...]",
        .examples = "plimsoll train configs/quickstart.yaml\n"
                    "plimsoll train run.yaml --learning-rate 1e-4 max_steps=100\n"
                    "plimsoll train run.yaml --dry-run\n"
                    "plimsoll train run.yaml --probe\n",
        .text = "Prints the memory ledger and the verdict, then trains. A job that does not fit\n"
                "is refused with exit 3 before anything is allocated. SIGINT, SIGTERM or SIGHUP\n"
                "finishes the step, saves a checkpoint and exits 130, 143 or 129; SIGUSR1,\n"
                "SIGUSR2 and SIGXCPU do so too, with 138, 140 and 152. The same command\n"
                "resumes.\n"
                "Where an earlier run of this kind was timed on this machine, the seconds of a\n"
                "step are predicted from it; nothing is decided by them. --profile prints at the\n"
                "end how long each kind of operation took; the host then waits for a GPU after\n"
                "each operation, so that steps on a GPU are slower than without the flag.\n",
        .run = pl_cmd_train,
        .arg = PL_ARG_FILE,
        .min_args = 1,
        .max_args = 1,
        .flags = PL_FLAG_BIT(DRY_RUN) | PL_FLAG_BIT(PROBE) | PL_FLAG_BIT(PROFILE) |
                 PL_FLAG_BIT(VRAM) | PL_FLAG_BIT(VRAM_GB),
        .keys = true,
    },
    {
        .name = "estimate-vram",
        .summary = "will it fit? The ledger of a model or a job, without any device",
        .synopsis =
            "[MODEL | CONFIG.yaml] [--gpu NAME | --vram SIZE | --vram-gb N] [--key value ...]",
        .examples = "plimsoll estimate-vram Qwen/Qwen2.5-7B --gpu \"RTX 4090\"\n"
                    "plimsoll estimate-vram path/to/model --vram 16GiB\n"
                    "plimsoll estimate-vram path/to/model --mode full --batch-size 2 --json\n"
                    "plimsoll estimate-vram run.yaml --vram-gb 24 --lora-r 64\n"
                    "plimsoll estimate-vram --vram-gb 16 --json | jq .recommended_batch_size\n"
                    "plimsoll estimate-vram --rule-of-thumb --params-billions 8 "
                    "--weight-precision nf4 --lora\n"
                    "plimsoll estimate-vram --table grid --vram-gb 24\n"
                    "plimsoll estimate-vram run.yaml --receipt receipt.json\n",
        .text =
            "MODEL is a directory with config.json, an id in the Hugging Face hub cache, or a\n"
            "name or id that `plimsoll models` lists; no weights are read. With --gpu the plan\n"
            "is that GPU's, compared with what a process can get of it. Exit 0: it fits, it is\n"
            "tight (with a warning), or no budget was named; exit 3: it does not fit, or\n"
            "the architecture cannot be computed here. Every byte is read off the plan that\n"
            "training would allocate. --receipt writes the question, the answer and digests of\n"
            "both to a file that `plimsoll plan --diff` compares; `train` writes the same form,\n"
            "with what was measured, as receipt.json in its output_dir.\n"
            "Without a model the answer is a rule of thumb, marked approximate: a batch size by\n"
            "the size of the card (of the local GPU when no size is given), the closed formula\n"
            "(--rule-of-thumb), or a table (--table).\n",
        .run = pl_cmd_estimate,
        .arg = PL_ARG_FILE,
        .max_args = 1,
        .flags = PL_FLAG_BIT(VRAM) | PL_FLAG_BIT(VRAM_GB) | PL_FLAG_BIT(GPU) |
                 PL_FLAG_BIT(RULE_OF_THUMB) | PL_FLAG_BIT(TABLE) | PL_FLAG_BIT(PARAMS_BILLIONS) |
                 PL_FLAG_BIT(WEIGHT_PRECISION) | PL_FLAG_BIT(INFERENCE) | PL_FLAG_BIT(LORA) |
                 PL_FLAG_BIT(NO_GRADIENT_CHECKPOINTING) | PL_FLAG_BIT(SEQ_LENGTH) |
                 PL_FLAG_BIT(NUM_LAYERS) | PL_FLAG_BIT(HIDDEN_DIM) | PL_FLAG_BIT(TRAINED_LAYERS) |
                 PL_FLAG_BIT(EFFECTIVE_BATCH) | PL_FLAG_BIT(CHECKLIST) | PL_FLAG_BIT(RECEIPT),
        .keys = true,
    },
    {
        .name = "plan",
        .summary = "advice: what fits, where the limits are, what each setting costs",
        .synopsis = "[MODEL | CONFIG.yaml] [--gpu NAME | --vram SIZE] [--effective-batch N] [--key "
                    "value ...] | --diff OLD.json NEW.json [--allow SIZE]",
        .examples =
            "plimsoll plan run.yaml --gpu \"RTX 4090\"\n"
            "plimsoll plan Qwen/Qwen2.5-7B --gpu L40S --effective-batch 16 --samples 1000 "
            "\\\n"
            "    --mean-tokens 400 --longest-tokens 1200\n"
            "plimsoll plan run.yaml --gpu \"RTX 4090\" --tables grid,limits\n"
            "plimsoll plan Qwen2.5-7B --mode full --gpu \"RTX 4090\" --host-ram 128GiB\n"
            "plimsoll plan Qwen2.5-72B --mode full --gpu H100 --devices auto --effective-batch 64\n"
            "plimsoll plan run.yaml --vram 24GiB --svg pictures --snapshot step.pickle\n"
            "plimsoll plan Llama-3.1-8B --mode qlora --gpu \"RTX 4090\" --longest\n"
            "plimsoll plan run.yaml --csv > grid.csv\n"
            "plimsoll plan --diff old.json new.json --allow 64MiB\n",
        .text =
            "Prints the job to run on this card, the next two alternatives and what they cost,\n"
            "and the configuration to paste; where nothing fits, what would be needed. What\n"
            "fits on the device alone comes before what takes host memory, which --host-ram\n"
            "bounds. --all adds the tables, and --tables prints those that are named: ledger,\n"
            "data (its lengths), grid (batch x length), limits (exact, of each axis), settings\n"
            "(the price of each), levels (of recomputation), step (ways to the effective\n"
            "batch), cards (that fit), assumes, advice. Each figure is a plan of its own. Exit\n"
            "3: not even one sample of the job as it is given fits.\n"
            "--devices auto says how many GPUs hold the job, with which sharding, and how long a\n"
            "step takes over the link of the card or over --link NAME: nvlink3, nvlink4,\n"
            "nvlink5, pcie3, pcie4, pcie5, 100g, 400g. --devices N is about that many. Where\n"
            "one GPU needs host memory for the job, or does not hold it, the fewest that do\n"
            "are named.\n"
            "--longest prints the longest max_seq_length that fits, with the batch size of the\n"
            "job or 1, for every level of recomputation: its bytes, and those of one token more,\n"
            "which does not fit. Exit 3: nothing fits.\n"
            "--diff OLD.json NEW.json plans nothing: it compares two receipts of estimate-vram\n"
            "or train by lines of their ledgers, and says which settings made the difference.\n"
            "Exit 3: the device's or the host's total grew by more than --allow.\n",
        .run = pl_cmd_plan,
        .arg = PL_ARG_FILE,
        .max_args = 1,
        .flags = PL_FLAG_BIT(GPU) | PL_FLAG_BIT(VRAM) | PL_FLAG_BIT(VRAM_GB) | PL_FLAG_BIT(LINK) |
                 PL_FLAG_BIT(EFFECTIVE_BATCH) | PL_FLAG_BIT(SAMPLES) | PL_FLAG_BIT(MEAN_TOKENS) |
                 PL_FLAG_BIT(LONGEST_TOKENS) | PL_FLAG_BIT(CSV) | PL_FLAG_BIT(SVG) |
                 PL_FLAG_BIT(SNAPSHOT) | PL_FLAG_BIT(DIFF) | PL_FLAG_BIT(ALLOW) | PL_FLAG_BIT(ALL) |
                 PL_FLAG_BIT(TABLES) | PL_FLAG_BIT(HOST_RAM) | PL_FLAG_BIT(LONGEST),
        .keys = true,
    },
    {
        .name = "validate",
        .summary = "check a configuration with its model and data; start nothing",
        .synopsis = "CONFIG.yaml [key=value ... | --key value ...]",
        .examples = "plimsoll validate run.yaml\n",
        .text = "Says whatever would keep `train` from starting, from cheap to dear: every error\n"
                "of the configuration, config.json, the plan and its verdict, output_dir, the\n"
                "headers of the weights, the checkpoint to resume, the tokenizer, every row of\n"
                "the data.\n",
        .run = pl_cmd_validate,
        .arg = PL_ARG_FILE,
        .min_args = 1,
        .max_args = 1,
        .flags = PL_FLAG_BIT(VRAM) | PL_FLAG_BIT(VRAM_GB),
        .keys = true,
    },
    {
        .name = "import",
        .summary = "write a job from a configuration of another trainer",
        .synopsis = "FILE [-o job.yaml] [--from NAME]",
        .examples = "plimsoll import their.yaml -o job.yaml\n"
                    "plimsoll import adapter/adapter_config.json\n"
                    "plimsoll import their.yaml --from trl --json | jq '.not_supported'\n",
        .text =
            "FILE is a configuration of axolotl, LLaMA-Factory, torchtune, TRL (and of the\n"
            "alignment handbook), Unsloth or accelerate, or the adapter_config.json of PEFT.\n"
            "The job has a comment for every line of it: what it was read from, why a line has\n"
            "no effect here, and what is not supported. Defaults of the trainer that differ\n"
            "from those here are written out. Exit 0: all that changes what is learned is in\n"
            "the job; exit 3: what is not is listed on stderr, too, and the job is written all\n"
            "the same. Without -o the job is written to stdout; a file that exists is not\n"
            "replaced. Nothing is fetched: a data set of the hub becomes a path, with the\n"
            "command that fetches it.\n",
        .run = pl_cmd_import,
        .arg = PL_ARG_FILE,
        .min_args = 1,
        .max_args = 1,
        .flags = PL_FLAG_BIT(OUTPUT) | PL_FLAG_BIT(FROM),
    },
    {
        .name = "generate",
        .summary = "continue a prompt with a model, and an adapter where there is one",
        .synopsis = "--model DIR [--adapter DIR] [--chat [--chat-template NAME]] [--prompt TEXT | "
                    "--prompt-ids N,N,... | <TEXT | --lines <TEXT] [--max-new-tokens N]",
        .examples = "plimsoll generate --model output/demo --prompt \"Once upon a time\"\n"
                    "plimsoll generate --model path/to/model --adapter output/lora --chat \\\n"
                    "    --prompt \"Who are you?\" --temperature 0.8 --top-p 0.95 --seed 7\n"
                    "plimsoll generate --model path/to/model --prompt-ids 1,15043 --json\n"
                    "plimsoll generate --model path/to/model --chat --lines <questions.txt\n",
        .text =
            "Weights, the KV cache of prompt and answer, and everything else on the device are\n"
            "planned, and refused with exit 3 where they do not fit, before a device is opened.\n"
            "Text is encoded by the tokenizer of --tokenizer, or of the model's directory, and\n"
            "the answer is printed as it is generated. --max-seq-length makes the cache longer\n"
            "than prompt and answer need. Without a prompt it is read from standard input, as a\n"
            "whole or with --lines one a line; --chat on a terminal keeps a conversation there,\n"
            "in which /reset begins anew and /exit ends. Of the keys of a job only those that\n"
            "say what to load and where to run have a meaning here: model, model_config, init,\n"
            "adapter_path, tokenizer, chat_template, dtype, base_dtype, quant_type,\n"
            "double_quant, quantize_head, quantize_embedding, unpack_buffer, max_seq_length,\n"
            "seed, device, threads, vram_budget, vram_margin, preflight, debug_inject.\n",
        .run = pl_cmd_generate,
        .flags = PL_FLAG_BIT(PROMPT) | PL_FLAG_BIT(CHAT) | PL_FLAG_BIT(LINES) |
                 PL_FLAG_BIT(ADAPTER) | PL_FLAG_BIT(PROMPT_IDS) | PL_FLAG_BIT(MAX_NEW_TOKENS) |
                 PL_FLAG_BIT(GREEDY) | PL_FLAG_BIT(TEMPERATURE) | PL_FLAG_BIT(TOP_K) |
                 PL_FLAG_BIT(TOP_P) | PL_FLAG_BIT(MIN_P) | PL_FLAG_BIT(REPETITION_PENALTY) |
                 PL_FLAG_BIT(IGNORE_EOS) | PL_FLAG_BIT(VRAM) | PL_FLAG_BIT(VRAM_GB),
        .keys = true,
    },
    {
        .name = "inspect",
        .summary = "print the step program: every op with its operands, offsets and live bytes",
        .synopsis = "--program [MODEL | CONFIG.yaml] [--key value ...]",
        .examples = "plimsoll inspect --program run.yaml\n"
                    "plimsoll inspect --program path/to/model --mode full --batch-size 1\n",
        .text = "",
        .run = pl_cmd_inspect,
        .arg = PL_ARG_FILE,
        .max_args = 1,
        .flags = PL_FLAG_BIT(PROGRAM) | PL_FLAG_BIT(VRAM) | PL_FLAG_BIT(VRAM_GB) | PL_FLAG_BIT(GPU),
        .keys = true,
    },
    {
        .name = "tokenize",
        .summary = "text to ids and back, chats to text, a job's samples as they are trained on",
        .synopsis = "{--tokenizer PATH [--no-special-tokens] <TEXT | --chat-template NAME <CHATS | "
                    "CONFIG.yaml [--show N]} [--json]",
        .examples = "echo \"To be, or not to be\" | plimsoll tokenize --tokenizer path/to/model\n"
                    "plimsoll tokenize --tokenizer tokenizer.json.gz --json <rows.jsonl\n"
                    "plimsoll tokenize --chat-template qwen25 --json <conversations.jsonl\n"
                    "plimsoll tokenize run.yaml --show 3\n",
        .text =
            "Reads lines of text and prints ids and pieces. Under --json a line is\n"
            "{\"text\":...}, its answer {\"ids\":[...],\"decoded\":...}. PATH is a directory\n"
            "with tokenizer.json, such a file, plain or gzip, or the word byte. Whatever a\n"
            "tokenizer.json asks for is done exactly, or the file is refused by name.\n"
            "With --chat-template a line is a conversation as JSON: messages, and optionally\n"
            "add_generation_prompt, enable_thinking, bos_token, eos_token, date. Under --json\n"
            "its answer is {\"rendered\":...}, or {\"error\":...} where the template\n"
            "refuses it.\n"
            "NAME is what `chat_template` takes; auto is the template of --tokenizer, with its\n"
            "special tokens. With auto and FILE.jinja a line may also have tools, documents\n"
            "and further variables of the template.\n"
            "With a job: its first samples, in the order training takes them, with what is\n"
            "trained on and what is masked, and the counts of the data. No device is opened.\n",
        .run = pl_cmd_tokenize,
        .arg = PL_ARG_FILE,
        .max_args = 1,
        .flags = PL_FLAG_BIT(TOKENIZER) | PL_FLAG_BIT(NO_SPECIAL_TOKENS) | PL_FLAG_BIT(SHOW) |
                 PL_FLAG_BIT(CHAT_TEMPLATE) | PL_FLAG_BIT(CHAT_DATE),
        .keys = true,
    },
    {
        .name = "merge",
        .summary = "put an adapter into its base model, or into a GGUF file",
        .synopsis = "--model DIR --adapter DIR {--output DIR | --gguf FILE} [--dtype TYPE] "
                    "[--memory SIZE]",
        .examples = "plimsoll merge --model path/to/model --adapter output --output merged\n"
                    "plimsoll merge --model path/to/model --adapter output --output merged "
                    "--dtype fp32\n"
                    "plimsoll merge --model path/to/model --adapter output --output merged "
                    "--memory 64MiB\n"
                    "plimsoll merge --model path/to/model --adapter output --gguf adapter.gguf\n",
        .text = "Writes W + scale B A of every adapted matrix, summed in fp32 and rounded once,\n"
                "and everything else unchanged: config.json, tokenizer and weights, in shards of\n"
                "5 GB or --shard-size. Matrices pass through buffers that are planned and\n"
                "printed, and kept below --memory; they do not grow with the model's depth.\n"
                "The files appear together at the end: SIGINT or a failure leaves none.\n"
                "With --gguf it writes the adapter alone, in fp32 or --dtype, named and ordered\n"
                "as llama.cpp's --lora expects; of the model only config.json is read.\n",
        .run = pl_cmd_merge,
        .flags = PL_FLAG_BIT(MODEL) | PL_FLAG_BIT(ADAPTER) | PL_FLAG_BIT(OUTPUT) |
                 PL_FLAG_BIT(DTYPE) | PL_FLAG_BIT(GGUF) | PL_FLAG_BIT(MEMORY) |
                 PL_FLAG_BIT(SHARD_SIZE),
    },
    {
        .name = "verify",
        .summary = "check a checkpoint, an adapter or a model for damage, byte by byte",
        .synopsis = "DIR",
        .examples = "plimsoll verify output\n"
                    "plimsoll verify output/checkpoint-500\n"
                    "plimsoll verify path/to/model --json | jq '.files[] | select(.problem)'\n",
        .text = "Files that Plimsoll has saved are compared with the digests in\n"
                "trainer_state.json. In these files and those of other programs it is checked\n"
                "that headers are well-formed, that every number is finite, and that shapes are\n"
                "those of config.json or adapter_config.json. For an output_dir its checkpoints\n"
                "are checked too. Exit 0: no damage was found; exit 5: every damaged file is\n"
                "named.\n",
        .run = pl_cmd_verify,
        .arg = PL_ARG_FILE,
        .min_args = 1,
        .max_args = 1,
    },
    {
        .name = "report",
        .summary = "a page with curves, memory and settings of one or several runs",
        .synopsis = "DIR... [--output FILE.html] [--watch]",
        .examples = "plimsoll report output\n"
                    "plimsoll report output/a output/b -o compare.html\n"
                    "plimsoll report output --watch\n"
                    "plimsoll report output --json | jq '.runs[] | {run, loss}'\n",
        .text = "DIR is the output_dir of a run. The page has its losses, evaluations, learning\n"
                "rate, gradient norm and speed over the steps, its memory bill and the bytes of\n"
                "the plan over the operations, recoveries, skipped steps, and the settings in\n"
                "which the runs differ; at most 16 runs. It is one file that fetches nothing.\n"
                "Without --output it is report.html in the first DIR.\n"
                "--watch writes the page again while a run lives, and an open page loads itself\n"
                "again. It ends when no run lives, and after SIGINT or SIGTERM with 130 or 143.\n",
        .run = pl_cmd_report,
        .arg = PL_ARG_FILE,
        .min_args = 1,
        .max_args = 16,
        .flags = PL_FLAG_BIT(OUTPUT) | PL_FLAG_BIT(WATCH),
    },
    {
        .name = "cards",
        .summary = "the GPUs that --gpu knows, with what a process can get of each",
        .synopsis = "",
        .examples = "plimsoll cards\n"
                    "plimsoll cards --json | jq '.cards[] | select(.nameplate_gb >= 24) | .name'\n",
        .text = "usable is the memory of an idle card before a context is made; the verdict of\n"
                "estimate-vram subtracts context and margin from it. For a GPU that is in the\n"
                "machine, its own figures are used.\n",
        .run = pl_cmd_cards,
    },
    {
        .name = "models",
        .summary = "the models that are known without a download, with exact counts",
        .synopsis = "",
        .examples = "plimsoll models\n"
                    "plimsoll models --json | jq -r '.models[].ids[]'\n",
        .text = "Wherever a MODEL is named, a directory of that name is used first, then the\n"
                "Hugging Face hub cache (HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface/hub), then\n"
                "this table.\n",
        .run = pl_cmd_models,
    },
    {
        .name = "fetch",
        .summary = "download a model or a data set from the Hugging Face hub, with `hf`",
        .synopsis = "ID [--dataset] [--revision R] [--include PATTERN]",
        .examples = "plimsoll fetch HuggingFaceTB/SmolLM2-135M\n"
                    "plimsoll fetch llama3.1:8b\n"
                    "plimsoll fetch tatsu-lab/alpaca --dataset\n"
                    "plimsoll fetch Qwen/Qwen2.5-0.5B --include \"*.json\"\n",
        .text = "Runs `hf download`, the command of huggingface_hub (pip install -U\n"
                "huggingface_hub), which puts the files into the hub cache, where every command\n"
                "finds them by the id. Of a model it fetches the configuration, the tokenizer and\n"
                "the weights in safetensors, and no copies of them in other formats. A name that\n"
                "`plimsoll models` knows stands for the first id of its row. A gated model needs\n"
                "its licence accepted on its page and `hf auth login`. SIGINT and SIGTERM are\n"
                "passed on, and the same command continues; everything else that keeps `hf` from\n"
                "fetching is one error with what mends it. Plimsoll opens no connection itself.\n",
        .run = pl_cmd_fetch,
        .arg = PL_ARG_HUB_ID,
        .min_args = 1,
        .max_args = 1,
        .flags = PL_FLAG_BIT(DATASET) | PL_FLAG_BIT(REVISION) | PL_FLAG_BIT(INCLUDE),
    },
    {
        .name = "devices",
        .summary = "what is in this machine: processor, memory, GPUs",
        .synopsis = "",
        .examples = "plimsoll devices\n"
                    "plimsoll devices --json\n",
        .text =
            "GPUs are asked through the driver's management library; no CUDA context is made.\n",
        .run = pl_cmd_devices,
    },
    {
        .name = "help",
        .summary = "explain a command, a configuration key, or all keys",
        .synopsis = "[COMMAND | KEY | keys]",
        .examples = "plimsoll help estimate-vram\n"
                    "plimsoll help lora_r\n"
                    "plimsoll help keys\n",
        .text =
            "Without an argument: the commands and the flags they share. `keys` prints the whole\n"
            "reference of configuration keys, the text of configs/REFERENCE.md.\n",
        .run = pl_cmd_help,
        .arg = PL_ARG_TOPIC,
        .max_args = 1,
    },
    {
        .name = "version",
        .summary = "version, compiler and back-ends of this binary",
        .synopsis = "",
        .examples = "plimsoll version\n"
                    "plimsoll version --json\n",
        .text = "",
        .run = pl_cmd_version,
    },
    {
        .name = "completion",
        .summary = "print a completion script for bash, zsh or fish",
        .synopsis = "bash | zsh | fish",
        .examples = "source <(plimsoll completion bash)\n"
                    "plimsoll completion zsh > \"${fpath[1]}/_plimsoll\"\n"
                    "plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish\n",
        .text = "The script knows the commands, flags, configuration keys and their choices of\n"
                "the binary that printed it.\n",
        .run = pl_cmd_completion,
        .arg = PL_ARG_SHELL,
        .min_args = 1,
        .max_args = 1,
    },
};

static const struct pl_cli_exit exits[] = {
    {"0", "done; for an estimate: it fits, it is tight, or no budget was asked about"},
    {"1", "failure at run time"},
    {"2", "usage or configuration"},
    {"3", "does not fit; for an estimate also: the architecture cannot be computed here; for an "
          "import: not all of it is supported"},
    {"4", "out of memory after recovery was exhausted"},
    {"5", "bad model, tokenizer, data or checkpoint file"},
    {"6", "no usable device"},
    {"129, 130, 143", "stopped by SIGHUP, SIGINT, SIGTERM"},
    {"138, 140, 152", "stopped by SIGUSR1, SIGUSR2, SIGXCPU"},
};

const struct pl_cli_exit *pl_cli_exits(size_t *n) {
    *n = sizeof exits / sizeof *exits;
    return exits;
}

const char *pl_cli_summary(void) {
    return "fine-tunes language models from a YAML file and plans every byte first";
}

const struct pl_command *pl_cli_commands(uint32_t *n) {
    *n = sizeof commands / sizeof *commands;
    return commands;
}

const struct pl_command *pl_cli_command_find(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}
