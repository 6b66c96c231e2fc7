// Options with named values. The command line and messages name a value in lower case: kBF16 is
// "bf16".
#pragma once

namespace tokamak {

// Which GPU kernels run, where there are several for the same work.
enum class KernelChoice {
  kVerified,  // the newest that passed their tests on this kind of GPU
  kNew,       // the newest
  kPlain,     // the oldest, which every GPU can run
  kTriton,    // as kVerified, but norms by a kernel that Triton compiled, in a build with that
};

// Whose kernels compute attention on GPUs.
enum class AttentionKernels {
  kOwn,
  // FlashInfer's, in a build with them. An answer's bits may depend on what shares its batch.
  // Models whose attention they do not support are refused.
  kFlashInfer,
};

// Whether decode steps run as CUDA graphs.
enum class CudaGraphs {
  kAuto,  // where the device supports them
  kOn,
  kOff,
};

// The type of cached keys and values.
enum class KvCacheDtype {
  kAuto,  // f32 when precise, else f16 on CPUs and bf16 on GPUs
  kF32,
  kF16,
  kBF16,
  kFp8,   // E4M3
  kQ8_0,  // on CPUs
};

// How DeepSeek-V2 and V3 compute multi-head latent attention, and what they cache. Results differ
// only by rounding.
enum class MlaForm {
  kStandard,  // caches every head's keys and values
  kLatent,    // caches latents; decompresses keys and values from them for each use
  kAbsorbed,  // caches latents and attends to them; projects queries and outputs instead
  // kLatent for sequences with many new positions in a step, else kAbsorbed. This depends on
  // the chunks of a prompt, so results are not batch invariant.
  kAuto,
};

// The place where the ranks of a model run.
enum class WorkerKind {
  kThreads,    // in this process
  kProcesses,  // each in a process of its own: if one dies, the others end with it and start again
};

// Speculative decoding, which makes answers faster and changes none: where drafts come from.
enum class Speculation {
  kAuto,  // kDraft if there is a draft model, else kNgram
  kOff,
  kNgram,  // what followed the same tokens earlier in the prompt or answer
  kDraft,  // a second, smaller model: EngineOptions::draft_model
};

// How an embedding model turns the hidden states of a text into a vector.
enum class Pooling {
  kAuto,  // what the model's files say
  kMean,  // over all tokens, special ones included
  kCls,   // the first token
  kLast,  // the last token
};

}  // namespace tokamak
