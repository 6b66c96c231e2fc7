// How a model is loaded and run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tokamak/image_options.h"
#include "tokamak/option_values.h"
#include "tokamak/sampling_params.h"

namespace tokamak {

// Options that are fixed once an engine is loaded. Only `model` must be set. The defaults suit a
// machine that runs nothing else.
struct EngineOptions {
  std::string model = {};  // .gguf file, Hugging Face directory, or dummy:<config.json>
  // llama.cpp's mmproj file with the image encoder of a .gguf model, or "none". Empty: the only
  // mmproj*.gguf in the model's folder, if it is this model's.
  std::string mmproj = {};
  std::string dummy_dtype = "bf16";  // type of a dummy model's matrices: bf16, q4_k, ...
  std::string device = "auto";       // cpu, cuda, cuda:N, auto
  std::string isa = "auto";          // CPU kernels: auto, or one listed by `tokamak run --help`
  // The exact but slower path: activations stay f32 (the default is int8 or bf16), and so do
  // weights on a GPU.
  bool precise = false;
  KernelChoice kernels = KernelChoice::kVerified;  // GPU only
  AttentionKernels attention = AttentionKernels::kOwn;
  CudaGraphs cuda_graphs = CudaGraphs::kAuto;
  int32_t steps_in_flight = 0;       // steps submitted ahead; 0: the device's best
  double step_timeout_seconds = 60;  // GPU only: a longer step fails; 0: no limit
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  MlaForm mla = MlaForm::kAbsorbed;  // DeepSeek only
  int32_t threads = 0;               // 0: one per physical core
  bool pin_threads = false;          // keep each compute thread on its own core
  int32_t tensor_parallel = 1;       // ranks among which the model is divided
  // Stages of a pipeline, each with some of the layers and as many ranks as tensor_parallel says.
  int32_t pipeline_parallel = 1;
  // Replicas of the model, each with its own weights, cache and scheduler, and its part of the
  // threads and of the cache's memory. Each request runs on one of them.
  int32_t data_parallel = 1;
  WorkerKind workers = WorkerKind::kThreads;
  // For processes: the tokamak program, which they run. Its command line sets it to itself.
  std::string worker_program = {};
  // For processes: instead of starting them, wait until workers that others start have joined at
  // this address, unix:PATH or HOST:PORT.
  std::string worker_address = {};
  double worker_join_seconds = 300;  // how long to wait for all of them
  // For HOST:PORT, PEM files: this side's certificate and its key, and the authority that must have
  // signed those of the workers.
  std::string worker_cert_file = {};
  std::string worker_key_file = {};
  std::string worker_ca_file = {};
  // For HOST:PORT and several ranks, which are on this machine: a folder through which they
  // exchange values, and which only this user may enter. It is made if it does not exist.
  std::string worker_folder = {};
  // For processes: a worker counts as lost if it takes longer than this for a step, and ten times
  // as long as steps like it take.
  double worker_timeout_seconds = 10;
  // For processes: the same, if it makes no progress for so long while it loads the model.
  double worker_load_timeout_seconds = 300;
  int32_t max_seqs = 0;  // sequences of a replica running at the same time; 0: 64, on GPUs 256
  int32_t max_batch_tokens = 0;  // tokens in one step; 0: 512, on GPUs 8192
  int32_t max_context = 0;       // 0: what the model was trained for
  int32_t max_queue = 1024;      // waiting requests; further ones are refused
  // The most alternatives that a request's logprobs and prompt_logprobs may ask for; -1: all
  // tokens. One takes 8 bytes for each token of an answer or prompt.
  int32_t max_logprobs = kDefaultMaxLogprobs;
  int32_t max_images = 16;                // of one prompt; 0: the model takes only text
  int64_t max_image_bytes = 32 << 20;     // of an image's file
  int32_t max_image_pixels = 64'000'000;  // of an image; decoding takes up to 14 bytes for each
  ImageOptions image_options = {};        // of images that have none; absent: the model's own
  // Tokens of images that the encoder cache holds, at least those of one image. 0: those of as many
  // images as a prompt may have, but at most 256 MiB.
  int32_t image_cache_tokens = 0;
  int32_t block_size = 16;       // positions per KV block
  int64_t kv_cache_bytes = 0;    // 0: chosen from the free memory
  int32_t num_blocks = 0;        // overrides kv_cache_bytes
  int64_t host_cache_bytes = 0;  // size of the host tier for swapped-out blocks
  double target_itl_ms = 0;      // longest wanted gap between a stream's tokens; 0: no target
  bool prefix_cache = true;
  Speculation speculate = Speculation::kAuto;
  int32_t draft_tokens = 4;      // most drafts of a sequence in one step
  int32_t draft_tokens_min = 0;  // a sequence that would have fewer has none
  // kNgram: drafts are what followed the same last tokens earlier. At least the first number of
  // tokens must be the same; the place with the most wins, where more than the second do not count.
  int32_t prompt_lookup_min = 2;
  int32_t prompt_lookup_max = 5;
  std::string draft_model = {};  // for Speculation::kDraft: as `model`
  // Less likely tokens end a sequence's drafts: by the draft model's probability, or for kNgram by
  // how often matches of that length went on. Text that a grammar forces is not affected.
  float draft_min_probability = 0;
  // With any other value than kAuto, a model embeds even if its files name no pooling.
  Pooling pooling = Pooling::kAuto;
  // Used where a request sets nothing, instead of what the checkpoint recommends.
  SamplingDefaults sampling = {};
  // Only for benchmarks, because it makes answers meaningless: every MoE layer chooses its experts
  // uniformly at random, with equal weights, whatever its router says. `tokamak bench` sets it.
  bool uniform_routing = false;
  // Only for benchmarks, because it makes answers meaningless: every row has draft_tokens drafts,
  // and each is accepted with this probability if those before it are.
  std::optional<float> synthetic_acceptance = {};
  bool profile = false;          // time every operation, for Engine::TakeProfile
  bool profile_events = false;   // with profile: also keep each operation as an event
  std::string record_path = {};  // where to log arrivals, steps and seeds for `tokamak replay`
  // Called on the loading thread with the fraction loaded so far, in [0, 1]; of dummy weights: 0.
  std::function<void(double)> on_load_progress = {};
};

}  // namespace tokamak
