#include "cli/common.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "images/image_options.h"

namespace tokamak::cli {
namespace {

// The fields of options that messages of the library name.
constexpr std::string_view kFields =
    " access_log api_key_file attention block_size context cuda_graphs device "
    "draft_min_probability draft_model draft_tokens draft_tokens_min "
    "drain_seconds "
    "dummy_dtype host image_cache_tokens image_root insecure kernels kv_cache_dtype "
    "max_answer_bytes "
    "max_batch_tokens "
    "max_body_bytes max_choices "
    "max_connections max_connections_per_client max_context max_image_bytes max_image_pixels "
    "max_images max_logprobs max_output_tokens "
    "max_queue max_seqs mmproj "
    "num_blocks pooling prompt_lookup_max prompt_lookup_min speculate step_timeout_seconds "
    "steps_in_flight synthetic_acceptance target_itl_ms threads workers worker_address "
    "worker_folder worker_join_seconds worker_load_timeout_seconds worker_timeout_seconds "
    "ca cert driver folder key rank "
    // Sampling.
    "allowed_token_ids bad_words dry_allowed_length dry_base dry_multiplier dry_penalty_last_n "
    "dynatemp_exponent dynatemp_range frequency_penalty length_penalty logit_bias logprobs "
    "max_tokens min_p min_tokens n presence_penalty prompt_logprobs repeat_last_n "
    "repetition_penalty stop stop_token_ids temperature thinking_token_budget top_k top_n_sigma "
    "top_p typical_p xtc_probability xtc_threshold ";
// Fields with flags of other names.
constexpr std::pair<std::string_view, std::string_view> kOtherFlags[] = {
    {"allow_image_hosts", "--allow-image-hosts"},
    {"allowed_hosts", "--allowed-host"},
    {"beam_search.width", "--num-beams"},
    {"cors_origins", "--cors-origin"},
    {"data_parallel", "--dp"},
    {"dry_sequence_breakers", "--dry-sequence-breaker"},
    {"host_cache_bytes", "--host-cache-memory"},
    {"image_options.max_pixels", "--mm-processor-kwargs max_pixels"},
    {"image_options.min_pixels", "--mm-processor-kwargs min_pixels"},
    {"kv_cache_bytes", "--kv-cache-memory"},
    {"pipeline_parallel", "--pp"},
    {"record_path", "--record"},
    {"tensor_parallel", "--tp"},
    {"tls_cert_file", "--tls-cert"},
    {"tls_key_file", "--tls-key"},
    {"worker_ca_file", "--worker-ca"},
    {"worker_cert_file", "--worker-cert"},
    {"worker_key_file", "--worker-key"}};

// Returns the flag of a field, and any other word as it is.
std::string FlagOf(std::string_view word) {
  for (const auto& [field, flag] : kOtherFlags) {
    if (field == word) return std::string(flag);
  }
  std::string text(word);
  if (kFields.find(fmt::format(" {} ", word)) == std::string_view::npos) return text;
  std::replace(text.begin(), text.end(), '_', '-');
  return "--" + text;
}

Result<ImageOptions> ParseImageOptions(const std::string& text) {
  const std::optional<JsonValue> json = JsonValue::Parse(text, {});
  if (!json || !json->is_object()) {
    return InvalidArgument("\"{}\" is not a JSON object, such as {{\"max_pixels\": 500000}}", text);
  }
  const auto describe = [](const JsonMismatch& mismatch) {
    return fmt::format("must be {}, got {}", mismatch.expected, mismatch.got->ToString());
  };
  const JsonReader fields(*json, "", describe, JsonReader::Track::kNone);
  const ImageOptions options = ReadImageOptions(fields);
  RETURN_IF_ERROR(fields.status());
  return options;
}

constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;

template <typename Loaded>
Result<std::unique_ptr<Loaded>> Load(EngineOptions options) {
  ASSIGN_OR_RETURN(options.model, ResolveModel(options.model));
  const bool show = ::isatty(STDERR_FILENO) != 0;
  if (show) {
    options.on_load_progress = [](double fraction) {
      std::fprintf(stderr, "\rloading %3.0f%%", fraction * 100);
    };
  }
  Result<std::unique_ptr<Loaded>> loaded = Loaded::Load(options);
  if (show) std::fprintf(stderr, "\r\033[K");
  return loaded;
}

}  // namespace

void AddModel(Flags& flags, std::string& model) {
  flags.Add("model", model,
            "A .gguf file, a Hugging Face directory or dummy:<config.json>; default: "
            "$TOKAMAK_MODEL, else the SmolLM2 that `make` fetched");
}

namespace {

// Options of the threads and ranks that compute.
void AddRankFlags(Flags& flags, EngineOptions& o) {
  flags.Add("--threads", o.threads, "Compute threads; 0: one per physical core");
  flags.Add("--pin-threads", o.pin_threads,
            "Pin each compute thread to a physical core, on machines that do nothing else");
  flags.Add("--tp", o.tensor_parallel,
            "Tensor parallelism: ranks that share the model, each on a GPU of its own with "
            "--device cuda");
  flags.Add("--pp", o.pipeline_parallel,
            "Pipeline parallelism: stages of --tp ranks, which have some of the layers each");
  flags.Add("--dp", o.data_parallel,
            "Data parallelism: replicas of the model that share the requests, each on GPUs of its "
            "own with --device cuda");
  flags.Add("--workers", o.workers,
            "Where the ranks run: threads of this process, or processes of their own");
  o.worker_program = "/proc/self/exe";
  flags.Add(
      "--worker-address", o.worker_address,
      "Where workers join that something else starts, instead of starting them: unix:PATH, or "
      "HOST:PORT with the four options below");
  flags.Add("--worker-cert", o.worker_cert_file,
            "This process's certificate, which names HOST (PEM)");
  flags.Add("--worker-key", o.worker_key_file, "Its key");
  flags.Add("--worker-ca", o.worker_ca_file,
            "The authority that must have signed the workers' certificates");
  flags.Add("--worker-folder", o.worker_folder,
            "A folder of this user alone, such as /dev/shm/NAME, for what several ranks exchange; "
            "it is made if it does not exist");
  flags.Add("--worker-join-seconds", o.worker_join_seconds,
            "How long to wait until all workers have joined");
  flags.Add(
      "--worker-timeout-seconds", o.worker_timeout_seconds,
      "A worker process counts as lost if it takes longer than this for a step, and ten times as "
      "long as steps like it take");
  flags.Add("--worker-load-timeout-seconds", o.worker_load_timeout_seconds,
            "The same, if it makes no progress for so long while it loads the model");
}

}  // namespace

void AddEngineFlags(Flags& flags, EngineOptions& o) {
  AddModel(flags, o.model);
  flags.Group("Engine");
  flags.Add("--mmproj", o.mmproj,
            "llama.cpp's file with the image encoder of a .gguf model, or none; default: the only "
            "mmproj*.gguf in the model's folder");
  flags.Add("--dummy-dtype", o.dummy_dtype, "Type of a dummy model's matrices: bf16, q4_k, ...");
  flags.Add("--device", o.device,
            "cpu, cuda, cuda:N, or auto: a GPU that can run it, else the CPU");
  AddRankFlags(flags, o);
  flags.Add("--isa", o.isa,
            "CPU kernels: auto, baseline or reference; on x86 avx512bf16, avx512vnni, amx, avx512, "
            "avxvnni or avx2; on Arm neoni8mm or neondot");
  flags.Add(
      "--precise", o.precise,
      "Keep activations in f32 instead of int8 or bf16, on GPUs weights too: exact, but slower");
  flags.Add("--kernels", o.kernels,
            "GPU kernels: verified (the newest that were tested on this kind of GPU), new (the "
            "newest), plain (the oldest) or triton (as verified, but norms by a kernel that "
            "Triton compiled; only builds with TOKAMAK_TRITON have it)");
  flags.Add("--attention", o.attention,
            "Attention on GPUs: own, or flashinfer (FlashInfer's kernels, to compare with: answers "
            "may then depend on what else runs; only builds with TOKAMAK_FLASHINFER have them)");
  flags.Add("--max-context", o.max_context, "Positions per sequence; 0: the model's own");
  flags.Add("--max-seqs", o.max_seqs,
            "Sequences running at the same time; 0: 64 on CPUs, 256 on GPUs");
  flags.Add("--max-batch-tokens", o.max_batch_tokens,
            "Tokens in one step; 0: 512 on CPUs, 8192 on GPUs");
  flags.Add("--max-queue", o.max_queue, "Waiting and paused requests; further ones are refused");
  flags.Add("--cuda-graphs", o.cuda_graphs, "Run decode steps as CUDA graphs: on, off or auto");
  flags.Add("--steps-in-flight", o.steps_in_flight,
            "Steps submitted before waiting for the first; 0: one more than stages, but 1 on a CPU "
            "in the same process without stages");
  flags.Add("--step-timeout-seconds", o.step_timeout_seconds,
            "Seconds after which a GPU that has not finished a step counts as failed; 0: no limit");
  flags.AddBytes("--kv-cache-memory", o.kv_cache_bytes,
                 "Memory for the KV cache, such as 2GiB; 0: chosen from what is free");
  flags.Add("--num-blocks", o.num_blocks, "KV blocks; overrides --kv-cache-memory");
  flags.Add("--block-size", o.block_size, "Positions per KV block");
  flags.Add(
      "--kv-cache-dtype", o.kv_cache_dtype,
      "f32, f16, bf16, fp8 (E4M3), q8_0 (on CPUs) or auto: f32 when precise, else f16 on CPUs, "
      "bf16 on GPUs");
  flags.Add("--mla", o.mla,
            "Multi-head latent attention (DeepSeek): absorbed attends to the cached latents, "
            "latent decompresses them, standard caches all heads; auto chooses by phase, so that "
            "answers may depend on what else runs");
  flags.AddBytes("--host-cache-memory", o.host_cache_bytes, "Memory for swapped-out KV blocks");
  flags.Add("--image-cache-tokens", o.image_cache_tokens,
            "Tokens of images that stay encoded, if the model takes images; 0: those of "
            "--max-images images, but at most 256 MiB");
  flags.Add("--target-itl-ms", o.target_itl_ms,
            "Longest gap wanted between two tokens of a stream; 0: no target");
  flags.Add(
      "--speculate", o.speculate,
      "Speculative decoding: ngram guesses that text repeats; draft has a second, smaller model "
      "guess; off; or auto: draft if there is a draft model, else ngram. It changes no answer, and "
      "the engine guesses only as far as it pays");
  flags.Add("--draft-tokens", o.draft_tokens, "Most tokens to guess per sequence and step");
  flags.Add("--draft-tokens-min", o.draft_tokens_min,
            "Guess no tokens of a sequence in a step that would have fewer");
  flags.Add("--prompt-lookup-min", o.prompt_lookup_min,
            "Tokens that must be the same as earlier in the text for a guess by ngram");
  flags.Add("--prompt-lookup-max", o.prompt_lookup_max,
            "More tokens than this that are the same make a place no better for a guess");
  flags.Add("--draft-model", o.draft_model,
            "The model that guesses, for --speculate draft; it must have the same tokens");
  flags.Add(
      "--draft-min-probability", o.draft_min_probability,
      "Guess no further than a token that is less likely: by the draft model, or for ngram by "
      "how often such guesses were right");
  flags.AddNegated("--no-prefix-cache", o.prefix_cache, "Compute every prompt from its beginning");
  flags.Add("--pooling", o.pooling,
            "How an embedding model makes a vector: mean, cls, last, or auto (as its files say)");
  flags.Add("--record", o.record_path,
            "Write arrivals and steps to this file, for `tokamak replay`");
}

void AddImageOptions(Flags& flags, ImageOptions& options) {
  flags.AddParsed(
      "--mm-processor-kwargs", "JSON",
      [&options](const std::string& text) {
        ASSIGN_OR_RETURN(options, ParseImageOptions(text));
        return Status();
      },
      "How large images are shown to models that keep their size: {\"min_pixels\": N, "
      "\"max_pixels\": N}; default: as the model's files say");
}

void AddDefaultSamplingFlags(Flags& flags, SamplingDefaults& s) {
  flags.Add("--temperature", s.temperature,
            "Randomness of the choice of tokens; 0: always the most likely one (greedy)");
  flags.Add(
      "--dynatemp-range", s.dynatemp_range,
      "Lower the temperature by up to this where the model is sure, raise it where it is not");
  flags.Add("--dynatemp-exponent", s.dynatemp_exponent,
            "Above 1 the temperature is lower for the same certainty (default 1)");
  flags.Add(
      "--top-n-sigma", s.top_n_sigma,
      "Drop tokens more than this many standard deviations of logits below the best; 0: none");
  flags.Add("--top-k", s.top_k, "Keep the K most likely tokens; 0: all");
  flags.Add("--top-p", s.top_p, "Keep the smallest set of tokens with this total probability");
  flags.Add("--min-p", s.min_p, "Drop tokens less likely than this times the most likely one");
  flags.Add("--typical-p", s.typical_p,
            "Keep the most typical tokens up to this total probability");
  flags.Add("--xtc-probability", s.xtc_probability,
            "How often XTC drops all of the most likely tokens but one; 0: never");
  flags.Add("--xtc-threshold", s.xtc_threshold,
            "The probability that makes a token one of these (default 0.1)");
  flags.Add("--repetition-penalty", s.repetition_penalty,
            "Penalty for tokens of the prompt and the output; 1: none");
  flags.Add("--presence-penalty", s.presence_penalty,
            "Penalty for tokens that are in the output, [-2, 2]");
  flags.Add("--frequency-penalty", s.frequency_penalty,
            "Penalty for each time that a token is in the output, [-2, 2]");
  flags.Add("--repeat-last-n", s.repeat_last_n,
            "Penalties look at so many last tokens; 0: none, -1: all (default)");
  flags.Add("--dry-multiplier", s.dry_multiplier,
            "DRY: penalty for going on with a repeat; 0: none (default)");
  flags.Add("--dry-base", s.dry_base,
            "DRY: factor of the penalty for each token that the repeat is longer (default 1.75)");
  flags.Add("--dry-allowed-length", s.dry_allowed_length,
            "DRY: tokens that a repeat may have without penalty (default 2)");
  flags.Add("--dry-penalty-last-n", s.dry_penalty_last_n,
            "DRY: looks for repeats of so many last tokens (default 64); -1: 65535");
  flags.Add("--dry-sequence-breaker", s.dry_sequence_breakers,
            "DRY: no repeat goes across this text; repeatable; none: no text (default: line break, "
            ":, \" and *)");
  flags.Add("--thinking-token-budget", s.thinking_token_budget,
            "End the model's reasoning after this many tokens; 0: at once (default: no limit)");
}

void AddSamplingFlags(Flags& flags, SamplingFlags& sampling) {
  SamplingParams& p = sampling.params;
  flags.Group("Sampling");
  AddDefaultSamplingFlags(flags, sampling.given);
  flags.Add("--logit-bias", sampling.logit_bias,
            "ID=BIAS: adds BIAS to the logit of token ID; repeatable");
  flags.Add("--allowed-token-ids", sampling.allowed_token_ids, "Draw only these tokens");
  flags.Add("--bad-words", p.bad_words, "Do not write this word; repeatable");
  flags.Add("--seed", p.seed, "The same seed gives the same answer (default: a random one)");
  flags.Add("-n,--n", p.n, "Answers to the same prompt");
  flags.Add("--max-tokens", sampling.given.max_tokens,
            "Tokens to generate at most (default: the rest of the context)");
  flags.Add("--min-tokens", p.min_tokens, "Tokens to generate before the answer may end");
  flags.Add("--stop", p.stop, "End the answer before this text; repeatable");
  flags.Add("--include-stop-str-in-output", p.include_stop_str_in_output,
            "End the answer behind the text of --stop");
  flags.AddNegated("--no-skip-special-tokens", p.skip_special_tokens,
                   "Show the names of special tokens in the answer");
  flags.Add("--stop-token-ids", sampling.stop_token_ids, "End the answer at any of these tokens");
  flags.Add("--ignore-eos", p.ignore_eos, "Do not end at the model's end-of-text tokens");
  flags.Add("--logprobs", p.logprobs, "Alternatives per generated token, with --json");
  flags.Add("--prompt-logprobs", p.prompt_logprobs, "Alternatives per prompt token, with --json");
  flags.Add("--num-beams", sampling.num_beams,
            "Search with so many beams instead of drawing tokens, for the -n best answers");
  flags.Add(
      "--length-penalty", sampling.length_penalty,
      "Rank them by the sum of logprobs / length ^ this; above 0 favors long ones (default 1)");
  flags.Add(
      "--early-stopping", sampling.early_stopping,
      "true: end the search with as many answers as beams; false: once the best beam is worse; "
      "never: once it is worse at the best length");
}

Result<SamplingParams> MakeSampling(const SamplingFlags& sampling,
                                    const SamplingDefaults& checkpoint) {
  SamplingParams params = sampling.params;
  checkpoint.ApplyTo(params);
  sampling.given.ApplyTo(params);
  if (sampling.stop_token_ids) params.stop_token_ids = *sampling.stop_token_ids;
  if (sampling.allowed_token_ids) params.allowed_token_ids = *sampling.allowed_token_ids;
  for (const std::string& text : sampling.logit_bias) {
    int32_t token = 0;
    float bias = 0;
    char rest = 0;
    if (std::sscanf(text.c_str(), "%d=%f%c", &token, &bias, &rest) != 2) {
      return InvalidArgument("--logit-bias: \"{}\" is not ID=BIAS, such as 42=-1.5", text);
    }
    params.logit_bias.emplace_back(token, bias);
  }
  if (sampling.num_beams) {
    if (sampling.given.temperature.value_or(0) > 0) {
      return InvalidArgument(
          "--temperature: must be 0 or absent with --num-beams, which draw nothing");
    }
    params.beam_search = {.width = *sampling.num_beams,
                          .length_penalty = sampling.length_penalty.value_or(1),
                          .early_stopping = sampling.early_stopping};
  } else if (sampling.length_penalty || sampling.early_stopping != EarlyStopping::kNo) {
    return InvalidArgument("--length-penalty and --early-stopping need --num-beams");
  }
  return params;
}

Result<std::string> ResolveModel(const std::string& model) {
  if (!model.empty()) return model;
  const std::string path = DefaultModelPath();
  if (!path.empty() && (FileExists(path) || path.starts_with("dummy:"))) return path;
  if (const char* given = std::getenv("TOKAMAK_MODEL"); given != nullptr && *given != 0) {
    return NotFound(
        "TOKAMAK_MODEL: \"{}\" does not exist; set it to a .gguf file or a Hugging Face directory, "
        "or give the model on the command line",
        given);
  }
  return NotFound(
      "no model was given and the default one does not exist{}; run scripts/fetch-model, set "
      "TOKAMAK_MODEL, or give a .gguf file",
      path.empty() ? "" : " (" + path + ")");
}

Result<std::unique_ptr<Engine>> LoadEngine(const EngineOptions& options) {
  return Load<Engine>(options);
}

Result<std::unique_ptr<Embedder>> LoadEmbedder(const EngineOptions& options) {
  return Load<Embedder>(options);
}

std::string WithFlags(std::string_view message) {
  constexpr std::string_view kWordBytes =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  std::string text;
  for (size_t at = 0; at < message.size();) {
    const size_t begin = std::min(message.find_first_of(kWordBytes, at), message.size());
    const size_t end = std::min(message.find_first_not_of(kWordBytes, begin), message.size());
    text += message.substr(at, begin - at);
    const std::string_view word = message.substr(begin, end - begin);
    at = end;
    // A word without an underscore may be just a word.
    const char next = end < message.size() ? message[end] : ' ';
    const bool names_field =
        word.find('_') != std::string_view::npos || next == '=' || (begin == 0 && next == ':');
    text += names_field ? FlagOf(word) : word;
  }
  return text;
}

int Fail(const Status& status) {
  std::fprintf(stderr, "error: %s\n", WithFlags(status.message()).c_str());
  return kFailed;
}

int UsageError(std::string_view message) {
  std::fprintf(stderr, "error: %.*s\n", static_cast<int>(message.size()), message.data());
  return kUsage;
}

Result<std::string> ReadText(const std::string& path) {
  if (path != "-") return ReadWholeFile(path, kMaxTextBytes);
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (text.size() > kMaxTextBytes) {
    return ResourceExhausted("stdin: has more than {} bytes; give less text at once",
                             kMaxTextBytes);
  }
  return text;
}

Result<ImageData> ReadImage(const Engine& engine, const std::string& path) {
  const std::optional<ImageInfo>& info = engine.model().images;
  if (!info) return InvalidArgument("{}: this model takes only text, no images", path);
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadWholeFile(path, static_cast<uint64_t>(info->max_bytes)));
  Result<ImageData> image = engine.PrepareImage(bytes);
  if (!image.ok()) return image.status().WithContext(path);
  return image;
}

std::string QuoteText(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

Status Stream(Engine& engine, Request request, const InterruptFlag* interrupt,
              const std::function<bool(OutputChunk)>& on_chunk) {
  constexpr double kPeriod = 0.05;  // seconds; a signal handler cannot wake this thread
  ASSIGN_OR_RETURN(OutputStream stream, engine.Stream(std::move(request)));
  bool wanted = true;
  Status failure;
  while (true) {
    const bool is_ready = stream.WaitFor(kPeriod);
    if (!wanted || (interrupt != nullptr && interrupt->raised())) stream.Cancel();
    if (!is_ready) continue;
    std::optional<OutputChunk> chunk = stream.Next();
    if (!chunk) return failure;
    if (chunk->finish_reason == FinishReason::kError && failure.ok()) failure = chunk->error;
    wanted &= on_chunk(*std::move(chunk));
  }
}

}  // namespace tokamak::cli
