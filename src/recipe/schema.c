/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema: the keys of a recipe beside those of models (fields.h), each with
 * type, default, range and meaning. Names are Megatron's where Megatron has
 * one. Listed by src/registry/recipe_tables.c. Read schema.h before. */
#include <string.h>

#include "schema.h"

/* In the order of the document: the run, the model, what is done with it. */
static const loong_recipe_key_t run_keys[] = {
    INT("version", "1", 1, 1, SAME, "version of the schema"),
    TEXT("name", "run", FREE, "name of the run, for logs"),
    TEXTS("extensions", FREE,
          "shared objects with ops, families, sources and keys of the user's, "
          "as [./mine.so]; opened before the rest is read, and named by the "
          "recipe itself or the command line alone"),
    INT("seed", "1234", 0, BIG, SAME, "of initialisation, data, dropout"),
    CHOICE("training_phase", "pretrain", "pretrain midtrain sft", FREE,
           "midtrain: pretraining that goes on from trained weights, with the "
           "same data and loss; sft: fine-tuning on conversations, which the "
           "paths of data.train are then, and the default with finetune of a "
           "model that reads texts"),
    CHOICE("device", "auto", "auto cpu cuda xpu", FREE,
           "kind of device, of all ranks; auto: an accelerator where every "
           "rank finds one, else cpu"),
    TEXTS("devices", FREE,
          "kinds with their ranks, as [cuda:0-3, cpu:4-], in place of device: "
          "ranks of one job on devices of several kinds"),
};

static const loong_recipe_key_t keys[] = {
    INT("parallel.tensor_model_parallel_size", "1", 1, 1024, FREE,
        "ranks that share each layer"),
    BOOL("parallel.sequence_parallel", "false", FREE,
         "tensor parallel ranks cut the tokens between layers as well"),
    INT("parallel.pipeline_model_parallel_size", "1", 1, 1024, FREE,
        "pipeline stages"),
    INT("parallel.num_layers_per_virtual_pipeline_stage", "0", 0, 1000000, FREE,
        "layers of each of a rank's chunks; 0: one chunk a rank"),
    TEXT("parallel.pipeline_model_parallel_layout", NULL, FREE,
         "stages of the pipeline, as Et*3|(tt|)*4tL: E embedding, t layer, L "
         "head and loss, | next stage; stage s on rank s modulo ranks"),
    CHOICE("schedule", "auto",
           "auto one_stage 1f1b interleaved zero_bubble_h1 zero_bubble_v", FREE,
           "order of work in a pipeline; auto: 1f1b, with several chunks a "
           "rank interleaved"),
    CHOICE("join", "coupled", "coupled phases", FREE,
           "where components that others read compute: coupled, each forward "
           "before the first that reads it, each backward behind the last "
           "gradient it reads; phases: all forwards at the start of a step, "
           "all backwards at its end"),
    INT("parallel.context_parallel_size", "1", 1, 1024, FREE,
        "ranks that share each sequence; twice as many divide seq_length"),
    CHOICE("parallel.cp_comm_type", "all_gather", "all_gather a2a p2p a2a+p2p",
           FREE,
           "how these bring queries and keys together: keys and values of "
           "all to each, all rows of a share of the heads, keys and values "
           "around a ring, or both of these"),
    {"parallel.hierarchical_context_parallel_sizes", LOONG_RECIPE_INTS, NULL, 1,
     1024, NULL, LOONG_RESUME_FREE,
     "[a2a, p2p] for a2a+p2p: neighbours that exchange heads, and ranks of "
     "a ring"},
    INT("parallel.expert_model_parallel_size", "1", 1, 1024, FREE,
        "ranks that share the experts of a layer"),
    INT("parallel.expert_tensor_parallel_size", "1", 1, 1024, FREE,
        "ranks that share each expert"),
    CHOICE("parallel.moe_token_dispatcher_type", "auto",
           "auto allgather alltoall", FREE,
           "how tokens come to experts on other ranks: all tokens to all "
           "ranks, or each to those that have its experts; auto: as fewer "
           "bytes are moved"),
    REAL("parallel.moe_capacity_plan", "1.5", 0, 1e6, FREE,
         "rows of experts that memory is laid out for, times an even share; a "
         "layer with more on a rank runs in rounds; 0: as many as there can "
         "be"),
    BOOL("parallel.tp_comm_overlap", "false", FREE,
         "with sequence_parallel: products work on the rows of one rank after "
         "the other, while those of the next come or go"),
    BOOL("parallel.overlap_moe_expert_parallel_comm", "false", FREE,
         "the forward of a micro-batch runs with the backward of another, so "
         "that each computes while collectives of the other are under way"),
    CHOICE("parallel.data_parallel_sharding", "optim",
           "none optim optim_grads optim_grads_params", FREE,
           "what data-parallel ranks share out: moments and masters, main "
           "gradients, parameters (ZeRO-1, -2, -3)"),
    BOOL("parallel.grad_reduce_in_bf16", "false", FREE,
         "data-parallel ranks send gradients rounded to bf16; sums are made "
         "in fp32 and rounded once"),
    BYTES("parallel.bucket_bytes", "32MiB", 4096, BIG, FREE,
          "bytes of gradients reduced at once"),

    TEXT("router_replay.record_file", NULL, FREE,
         "file that takes the experts chosen for every token of the training"),
    TEXT("router_replay.replay_file", NULL, FREE,
         "file of experts that are taken in place of the router's choice"),

    CHOICE("precision.params_dtype", "auto", "auto bf16 fp32 fp64", SAME,
           "compute type; auto: bf16 where the processor multiplies it"),
    TEXTS("precision.fp32_scopes", SAME,
          "globs of scopes whose ops work in fp32 where others use bf16; what "
          "stages of a pipeline send each other is then fp32"),
    BOOL("precision.tf32", "false", SAME,
         "products of fp32 round their operands to tf32, which has 10 bits of "
         "mantissa; on devices that multiply it"),
    TEXT("gemm.algorithms_file", NULL, FREE,
         "file of the fastest algorithms of matrix products, by device, "
         "library and size: those that it lacks are measured at the start and "
         "entered; none: the library's first choice"),
    CHOICE("recompute.granularity", "none", "none full selective", FREE,
           "what the backward computes again: nothing, layers, scopes"),
    TEXTS("recompute.scopes", FREE, "globs of scopes, for selective"),

    TEXT("data.tokenizer", NULL, FREE,
         "tokenizer.json or its directory: for texts with pictures, samples, "
         "and what exports bring; data sets are tokens already"),
    TEXT("data.image_token", "<image>", SAME,
         "token of texts that stands for a picture"),
    CHOICE("data.chat.format", "auto",
           "auto openai sharegpt alpaca prompt_completion preference kto text",
           SAME,
           "of the records of conversations; auto: of each file by the keys of "
           "its first record"),
    TEXT("data.chat.template", NULL, SAME,
         "how conversations are written: one of the model's templates or a "
         "built-in one by name, or the path of a .jinja; the model's own when "
         "not given"),
    TEXT("data.chat.template_kwargs", NULL, SAME,
         "a JSON object of more variables of the template, as "
         "'{\"enable_thinking\": false}'"),
    TEXT("data.chat.date", NULL, FREE,
         "day that a template shows as today's (strftime_now), as 2026-01-31; "
         "when not given that on which the run began, also of a resumed one"),
    CHOICE("data.chat.train_on", "assistant", "assistant all last", SAME,
           "what of a conversation is learned: the assistant's messages, all "
           "(but results of tools), or the last of the assistant's; never a "
           "message whose weight is 0"),
    BOOL("data.chat.train_on_tool_results", "false", SAME,
         "results of tools are learned as well"),
    BOOL("data.chat.use_chosen", "false", SAME,
         "of preference pairs what was chosen is learned, of labelled answers "
         "(KTO) those labelled true"),
    TEXTS("data.chat.tags", SAME,
          "names of keys and roles in sharegpt's format, of messages, role, "
          "content, user, assistant, system, tool, function, as [user=human, "
          "assistant=gpt]"),
    BOOL("data.chat.skip_refused", "false", FREE,
         "records that cannot be used are left out; else there is no run "
         "with them"),
    TEXT("data.chat.cache", NULL, FREE,
         "directory for texts and ids of conversations, made once; libloong "
         "below $XDG_CACHE_HOME or $HOME/.cache when not given"),
    /* A checkpoint has the content of each source and its share. */
    TEXT("data.train[].path", NULL, FREE,
         "prefix of an indexed data set, or where pictures or conversations "
         "are; an item that is a text is its path; a resumed run wants the "
         "same content"),
    TEXT("data.train[].source", NULL, SAME,
         "class of the source: tokens, an indexed data set; documents, the "
         "same by whole documents; images, labelled pictures in a directory "
         "for each class, or tar files; image_text, a .jsonl of texts with "
         "pictures; chat, conversations; or one that was registered; what the "
         "model reads when not given, and chat in training_phase sft"),
    REAL("data.train[].weight", NULL, 0, 1e9, FREE,
         "share of the blend, above 0; sources are drawn by their size when "
         "none has a weight; a resumed run wants the same shares"),
    INT("data.train[].max_epochs", "0", 0, 1e9, SAME, "0: no bound"),
    TEXT("data.validation[].name", NULL, FREE, "name in the log"),
    TEXT("data.validation[].path", NULL, FREE, "prefix of a data set"),
    TEXT("data.validation[].source", NULL, FREE, "as in data.train"),
    TEXT("data.image_processor", NULL, SAME,
         "preprocessor_config.json of pictures; when not given that of the "
         "family, for the model's image_size"),
    REAL("data.mask_ratio", "0.6", 1e-6, 1, SAME,
         "masked image modelling: share of a picture's patches that are "
         "masked, rounded to whole ones; which, is drawn anew each time"),
    INT("data.max_images", NULL, 1, 1e6, FREE,
        "pictures of a micro-batch of texts, at most, for which the image "
        "encoder has memory; one a sample when not given"),
    INT("data.num_workers", "2", 0, 1024, FREE,
        "threads of a rank that read and decode the pictures of the next "
        "step; 0: between the steps"),
    REAL("data.validation_split", "0", 0, 0.5, SAME,
         "share of each source's documents, at its end, kept for validation"),
    AMOUNT("data.seq_length", NULL, 1, 1e9, SAME,
           "tokens of a sample; of a model that reads pictures the rows of "
           "one, which need not be given"),
    CHOICE("data.packing", "none", "none greedy best_fit", SAME,
           "how texts of lengths of their own share rows of seq_length: each "
           "has one of its own, padded; in a drawn order, each where it leaves "
           "the least room; or likewise from the longest on. They do not see "
           "each other, and positions restart"),
    BOOL("data.balance", "true", FREE,
         "micro-batches of rows that texts share are dealt to data-parallel "
         "ranks by their planned cost: places, and attention among the ids of "
         "each text; else in the order they are drawn in"),
    CHOICE("data.truncation", "refuse", "refuse left right turn", SAME,
           "of texts of more than seq_length + 1 ids: an error that names "
           "them; their left or right end is cut; or their oldest turns are "
           "dropped"),
    BOOL("data.reset_position_ids", "false", SAME,
         "positions restart at each document"),
    BOOL("data.reset_attention_mask", "false", SAME,
         "documents do not see each other"),
    BOOL("data.eod_mask_loss", "false", SAME,
         "no loss across the end of a document"),
    {"data.vision_token_ids", LOONG_RECIPE_INTS, NULL, 0, BIG, NULL,
     LOONG_RESUME_SAME,
     "ids that stand for parts of images: their tokens go to the second set "
     "of experts (moe_vision_ffn_hidden_size)"},

    INT("train.micro_batch_size", "1", 1, 1e6, FREE, "samples at once"),
    AMOUNT("train.global_batch_size", NULL, 1, 1e9, SAME, "samples of a step"),
    {"train.rampup_batch_size", LOONG_RECIPE_INTS, NULL, 0, BIG, NULL,
     LOONG_RESUME_SAME, "[start, increment, samples]"},
    AMOUNT("train.train_iters", NULL, 1, BIG, FREE,
           "optimizer steps; or the next, or the one after it"),
    AMOUNT("train.train_samples", NULL, 1, BIG, FREE,
           "length of the training in samples"),
    AMOUNT("train.train_tokens", NULL, 1, BIG, FREE,
           "length of the training in tokens"),
    REAL("train.epochs", NULL, 1e-9, 1e9, FREE,
         "length of the training in passes over data.train, counted in rows "
         "where texts share them; the rest of a last batch is empty"),
    AMOUNT("train.exit_interval", "0", 0, BIG, FREE,
           "stop with a checkpoint when the step is a multiple; 0: never"),
    SECONDS("train.max_wall_time", "0", FREE,
            "stop with a checkpoint after this time; 0: never"),
    CHOICE("train.loss_normalization", "token", "token sample square_root",
           SAME,
           "what counts equally in the loss of a step: learned tokens; "
           "samples, whatever their N learned tokens; or, between the two, "
           "each token weighs 1 / sqrt(N)"),
    REAL("train.z_loss_coeff", "0", 0, 1, SAME, "of the squared log-sum-exp"),
    REAL("train.kl_loss_coeff", "0", 0, 1e6, SAME,
         "of the KL divergence from the model as it was at the start"),
    CHOICE("train.cuda_graph_impl", "none", "none local auto", FREE,
           "programs are captured once and replayed as graphs of the device; "
           "auto: where it has them, and step by step should that fail"),
    CHOICE("train.attention_backend", "auto", "local fused auto", FREE,
           "who makes attention on a GPU: local: the library's own kernels; "
           "fused: cuDNN; auto: cuDNN on compute capability 9.x and 10.x, and "
           "own kernels for what it refuses and on other GPUs"),
    CHOICE("train.on_nan", "stop", "stop skip", FREE,
           "a loss or gradient that is not finite"),

    CHOICE("optimizer.name", "adamw", "adamw lion sgd muon", SAME,
           "class of the update rule; keys of another class are refused"),
    REAL("optimizer.lr", NULL, 0, 1000, FREE, "highest learning rate"),
    REAL("optimizer.min_lr", "0", 0, 1000, FREE, "lowest learning rate"),
    CHOICE("optimizer.lr_decay_style", "cosine", "constant cosine linear WSD",
           FREE, "shape of the decay"),
    AMOUNT("optimizer.lr_warmup_iters", "0", 0, BIG, FREE, "steps of warm-up"),
    REAL("optimizer.lr_warmup_fraction", "0", 0, 1, FREE,
         "of the steps until the decay ends: in place of lr_warmup_iters, "
         "rounded up"),
    AMOUNT("optimizer.lr_decay_iters", NULL, 1, BIG, FREE,
           "step where the decay ends; train_iters when not given"),
    AMOUNT("optimizer.lr_wsd_decay_iters", "0", 0, BIG, FREE,
           "length of the decay"),
    CHOICE("optimizer.lr_wsd_decay_style", "exponential",
           "linear cosine exponential minus_sqrt", FREE,
           "shape of WSD's decay"),
    REAL("optimizer.adam_beta1", "0.9", 0, 0.99999, SAME, "first moment"),
    REAL("optimizer.adam_beta2", "0.95", 0, 0.999999, SAME, "second moment"),
    REAL("optimizer.adam_eps", "1e-8", 0, 1, SAME, "added to the root"),
    REAL("optimizer.lion_beta1", "0.9", 0, 0.99999, SAME,
         "share of the momentum in what the sign is taken of"),
    REAL("optimizer.lion_beta2", "0.99", 0, 0.999999, SAME,
         "share of the momentum that the next step keeps"),
    REAL("optimizer.sgd_momentum", "0.9", 0, 0.999999, SAME,
         "share of the momentum buffer that a step keeps; 0: the gradient "
         "alone"),
    BOOL("optimizer.sgd_nesterov", "false", SAME,
         "the step looks ahead by its momentum"),
    REAL("optimizer.muon_momentum", "0.95", 0, 0.999999, SAME,
         "share of the momentum buffer that a step keeps"),
    BOOL("optimizer.muon_use_nesterov", "true", SAME,
         "the step looks ahead by its momentum"),
    INT("optimizer.muon_num_ns_steps", "5", 1, 100, SAME,
        "steps of Newton-Schulz"),
    CHOICE("optimizer.muon_scale_mode", "original", "original match_rms_adamw",
           SAME,
           "size of a step: times sqrt(max(1, rows / columns)), or "
           "0.2 sqrt(max(rows, columns)), about that of adamw"),
    CHOICE("optimizer.exp_avg_dtype", "fp32", "fp32 bf16", FREE,
           "how the first moment is stored; fp32 stands for fp64 where that "
           "is params_dtype"),
    CHOICE("optimizer.exp_avg_sq_dtype", "fp32", "fp32 bf16", FREE,
           "how the second moment is stored, likewise"),
    CHOICE("optimizer.momentum_buffer_dtype", "fp32", "fp32 bf16", FREE,
           "how sgd's momentum buffer is stored, likewise"),
    BOOL("optimizer.stochastic_rounding", "false", FREE,
         "of moments stored in bf16: up or down by chance, so that what is "
         "smaller than their last place adds up; else to nearest"),
    REAL("optimizer.weight_decay", "0.1", 0, 100, FREE,
         "of matrices and embeddings, not of norms and biases"),
    TEXT("optimizer.weight_decay_rules[].scope", NULL, FREE,
         "glob over parameter names; the last match holds"),
    REAL("optimizer.weight_decay_rules[].factor", "0", 0, 1000, FREE,
         "times optimizer.weight_decay; 1 for matrices and 0 for vectors when "
         "no rule matches"),
    TEXT("optimizer.groups[].scope", NULL, SAME,
         "glob over parameter names; what is trained is in one scope, where "
         "there are groups"),
    CHOICE("optimizer.groups[].name", NULL, "adamw lion sgd muon", SAME,
           "class of these; optimizer.name when not given"),
    REAL("optimizer.groups[].lr", NULL, 0, 1000, FREE,
         "highest learning rate of these, in the proportion of which they "
         "follow the schedule; optimizer.lr when not given"),
    REAL("optimizer.groups[].weight_decay", NULL, 0, 100, FREE,
         "of these; optimizer.weight_decay when not given"),
    REAL("optimizer.ema.decay", "0", 0, 0.9999999, FREE,
         "of an exponential moving average of what is trained, kept beside it "
         "in the type of masters and saved; 0: none is kept"),
    AMOUNT("optimizer.ema.update_after_step", "0", 0, BIG, FREE,
           "until so many updates the average is what is trained"),
    BOOL("optimizer.ema.use_ema_warmup", "false", FREE,
         "n updates later the decay is (1 + n) / (10 + n) at most"),
    REAL("optimizer.clip_grad", "1.0", 0, 1e9, FREE,
         "largest global norm; 0: no clipping"),

    TEXT("init.from_hf", NULL, FREE, "Hugging Face directory to start from"),
    TEXT("init.by_scope[].scope", NULL, FREE,
         "glob over parameter names: how these start; the last match holds. "
         "With init.from_hf, and of a checkpoint, those that it lacks or has "
         "in another shape"),
    CHOICE("init.by_scope[].method", "normal",
           "normal truncated_normal uniform zeros ones", FREE,
           "distribution; truncated_normal draws again beyond 3 std"),
    REAL("init.by_scope[].std", "0", 0, 1000, FREE,
         "standard deviation, of uniform too; 0: as the model has it"),
    TEXT("export.hf", NULL, FREE,
         "Hugging Face directory to write at the end, in the place of one of "
         "the same model if it is there; needs checkpoint.save"),
    BOOL("export.ema", "false", FREE,
         "export.hf writes the average that optimizer.ema.decay keeps"),
    BOOL("export.merge", "false", FREE,
         "of a run with adapters: the model with what they add to its "
         "matrices; else export.hf is a directory of the adapters alone, as "
         "peft has them"),
    TEXT("export.as", NULL, FREE,
         "model type of its config.json, of those that can say the same "
         "model, as llama for an internlm2; default: its own"),
    TEXT("checkpoint.save", NULL, FREE, "directory of checkpoints"),
    TEXT("checkpoint.load", NULL, FREE,
         "directory to resume from; auto: checkpoint.save if it has one"),
    BOOL("checkpoint.no_load_optim", "false", FREE,
         "parameters only, as from an imported checkpoint: moments begin at 0"),
    AMOUNT("checkpoint.save_interval", "0", 0, BIG, FREE,
           "steps; 0: only at the end"),
    SECONDS("checkpoint.save_interval_seconds", "0", FREE, "0: never"),
    INT("checkpoint.keep_last", "2", 0, 1e6, FREE,
        "older ones are removed; 0: all"),
    BOOL("checkpoint.async", "true", FREE, "write while training goes on"),
    TEXTS("resume.override", FREE,
          "keys, maps or lists of them that may change although marked same"),

    AMOUNT("eval.interval", "0", 0, BIG, FREE, "steps; 0: only at the end"),
    BOOL("eval.on_start", "false", FREE, "an evaluation before the first step"),
    AMOUNT("eval.iters", "0", 0, BIG, FREE, "global batches; 0: the whole set"),
    BOOL("eval.ema", "false", FREE,
         "evaluations and samples are those of the average that "
         "optimizer.ema.decay keeps"),
    TEXTS("eval.sample.prompts", FREE, "texts to continue at an evaluation"),
    INT("eval.sample.conversations", "0", 0, 1000, FREE,
        "of the first validation set, else of the training: first questions "
        "that are answered at an evaluation"),
    INT("eval.sample.max_new_tokens", "64", 1, 100000, FREE, "tokens"),
    REAL("eval.sample.temperature", "0.8", 0, 100, FREE, "0: the likeliest"),
    INT("eval.sample.top_k", "40", 0, 1e6, FREE, "0: all"),

    AMOUNT("log.interval", "10", 1, BIG, FREE, "steps"),
    TEXT("log.dir", NULL, FREE, "of metrics.jsonl and TensorBoard files"),
    TEXTS("log.tensors", FREE,
          "globs of scopes whose tensors and their gradients are logged: "
          "norm, largest value, number not finite"),
    AMOUNT("log.tensors_interval", "100", 1, BIG, FREE, "steps"),
    BOOL("log.tensorboard", "true", FREE, "write event files"),

    CHOICE("comm.backend", "auto", "auto self mpi", FREE, "communicator"),
    CHOICE("comm.device_backend", "auto", "auto staged", FREE,
           "between devices of one kind; auto: their own (NCCL), staged: "
           "through host memory, as between devices of several kinds"),
    {"comm.timeout", LOONG_RECIPE_SECONDS, "300", 1, BIG, NULL,
     LOONG_RESUME_FREE, "a collective that waits longer for a rank fails"},
    {"comm.heartbeat_timeout", LOONG_RECIPE_SECONDS, "40", 1, BIG, NULL,
     LOONG_RESUME_FREE,
     "a rank on another machine that is waited for and does not answer for so "
     "long is lost; so is a collective in which all its devices stand, and a "
     "device that ends nothing of what was launched"},
    BOOL("comm.overlap", "true", FREE,
         "collectives run beside computation, on a thread of their own"),
    BYTES("comm.overlap_work", "256KiB", 0, BIG, FREE,
          "where the computation beside one touches at least so many bytes"),

    CHOICE("predict.device", "auto", "auto a100 h100 h200 b200", FREE,
           "GPU whose rates --dry-run takes for device: cuda; auto: an h200"),
    REAL("predict.tflops", "0", 0, 1e6, FREE,
         "dense bf16 products, TFLOP/s of the datasheet; 0: the table's, as "
         "in all of these"),
    REAL("predict.products", "0", 0, 1, FREE,
         "share of it that a large product reaches"),
    REAL("predict.copy", "0", 0, 1e6, FREE,
         "GB/s that a copy on the device reads and writes together"),
    REAL("predict.link", "0", 0, 1e6, FREE,
         "GB/s that a GPU sends to another of its machine"),
    REAL("predict.network", "0", 0, 1e6, FREE,
         "GB/s that a GPU sends to another machine"),
    INT("predict.machine", "0", 0, 1e6, FREE, "GPUs of a machine"),

    CHOICE("fault[].kind", NULL,
           "kill crash stop hang exit slow wrong_collective io_error "
           "nan_gradient corrupt_checkpoint",
           FREE,
           "what is made to go wrong, to try what happens: docs/faults.md"),
    INT("fault[].rank", "0", 0, 1e6, FREE, "rank that it happens on"),
    AMOUNT("fault[].step", NULL, 0, BIG, FREE,
           "steps done before it; of corrupt_checkpoint: the checkpoint's"),
    SECONDS("fault[].seconds", "1", FREE, "how late slow is"),
    INT("fault[].attempts", "1", 0, 1e6, FREE,
        "it happens in so many first attempts of loong-supervise; 0: in all"),
};

const loong_recipe_table_t loongi_recipe_run_keys = {
    NULL, run_keys, LOONG_COUNT_OF(run_keys)};
const loong_recipe_table_t loongi_recipe_keys = {NULL, keys,
                                                 LOONG_COUNT_OF(keys)};

static const loong_recipe_key_t *row_of(const loong_recipe_table_t *table,
                                        int64_t i)
{
    return table->prefix != NULL
               ? &((const loong_recipe_field_t *)table->rows)[i].key
               : &((const loong_recipe_key_t *)table->rows)[i];
}

/* The key that holds where one of a component is not given; NULL: none. */
static const char *common_key(const char *path)
{
    static const char *const sections[] = {"precision.", "recompute.",
                                           "optimizer."};
    const char *role = strncmp(path, "model.", 6) == 0 ? path + 6 : "";
    const char *own = strchr(role, '.');
    for (int64_t i = 0; i < LOONG_COUNT_OF(sections) && own != NULL; i++) {
        if (strncmp(own + 1, sections[i], strlen(sections[i])) == 0) {
            return own + 1;
        }
    }
    return NULL;
}

const char *loong_recipe_default_text(const loong_recipe_key_t *key)
{
    const loong_recipe_field_t *field = (const void *)key;
    const char *text = common_key(key->path);
    for (int64_t i = 0; loongi_recipe_tables[i] != NULL; i++) {
        const loong_recipe_table_t *table = loongi_recipe_tables[i];
        for (int64_t k = 0; table->prefix != NULL && k < table->count; k++) {
            text = row_of(table, k) == key && !field->needed ? "of the family"
                                                             : text;
        }
    }
    return key->fallback != NULL ? key->fallback : text != NULL ? text : "none";
}

int64_t loong_recipe_num_keys(void)
{
    int64_t count = 0;
    for (int64_t i = 0; loongi_recipe_tables[i] != NULL; i++) {
        count += loongi_recipe_tables[i]->count;
    }
    return count;
}

const loong_recipe_key_t *loong_recipe_key(int64_t index)
{
    const loong_recipe_table_t *const *table = loongi_recipe_tables;
    while (index >= 0 && *table != NULL && index >= (*table)->count) {
        index -= (*table++)->count;
    }
    return index >= 0 && *table != NULL ? row_of(*table, index) : NULL;
}
