// FlashInfer's paged prefill kernel in the style of FlashAttention 2, which decodes too: the query
// heads that share a KV head are the rows of its tile.
#include "ops/cuda/flashinfer/kernels.h"

#include <exception>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"

namespace tokamak::cuda {
namespace {

using Element = nv_bfloat16;
using BaseParams = flashinfer::BatchPrefillPagedParams<Element, Element, Element, int32_t>;
using PlainSoftmax = flashinfer::DefaultAttention<false, false, false, false>;

// FlashInfer's block tables follow one another without gaps, so the next one's begin tells a
// sequence's length. Ours have gaps, so the length is given.
struct Params : BaseParams {
  const int32_t* seq_lens = nullptr;

  __host__ __device__ uint32_t get_kv_len(uint32_t sequence) const {
    return static_cast<uint32_t>(seq_lens[sequence]);
  }
};

constexpr int kThreads = 256;

__global__ void TableStartsKernel(const int32_t* rows, int32_t num_seqs, int32_t stride,
                                  int32_t num_entries, int32_t* starts) {
  const auto s = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (s < num_seqs) starts[s] = rows[s] * stride;
  if (s == num_seqs) starts[s] = num_entries;
}

flashinfer::paged_kv_t<Element, int32_t> PagedKv(const KvLayerView& cache,
                                                 const FlashInferStep& step) {
  const int64_t strides[] = {cache.block_stride / static_cast<int64_t>(sizeof(Element)),
                             int64_t{cache.block_size} * cache.head_dim, cache.head_dim};
  return {static_cast<uint32_t>(cache.num_kv_heads),
          static_cast<uint32_t>(cache.block_size),
          static_cast<uint32_t>(cache.head_dim),
          static_cast<uint32_t>(step.cut.num_seqs),
          flashinfer::QKVLayout::kHND,
          reinterpret_cast<Element*>(cache.base + cache.k_offset),
          reinterpret_cast<Element*>(cache.base + cache.v_offset),
          strides,
          step.block_tables,
          step.table_starts,
          /*last_page_len=*/nullptr};
}

Params MakeParams(const Attention& op, const FlashInferStep& step) {
  const FlashInferCut& cut = step.cut;
  const auto num_heads = static_cast<uint32_t>(op.out.cols() / op.cache.head_dim);
  Params params;
  params.q = static_cast<Element*>(op.q.data);
  params.paged_kv = PagedKv(op.cache, step);
  params.q_indptr = step.query_start_loc;
  params.o = static_cast<Element*>(op.out.data);
  params.group_size =
      flashinfer::uint_fastdiv(num_heads / static_cast<uint32_t>(op.cache.num_kv_heads));
  params.num_qo_heads = num_heads;
  params.q_stride_n = static_cast<int32_t>(ElementStride(op.q));
  params.q_stride_h = op.cache.head_dim;
  params.window_left = -1;
  params.sm_scale = op.scale;
  params.request_indices = step.arrays + cut.sequences();
  params.qo_tile_indices = step.arrays + cut.tiles();
  params.kv_tile_indices = step.arrays + cut.chunks();
  params.o_indptr = step.arrays + cut.sequence_partials();
  params.merge_indptr = step.arrays + cut.token_partials();
  params.kv_chunk_size_ptr = step.arrays + cut.chunk_size();
  params.block_valid_mask = reinterpret_cast<bool*>(step.arrays + cut.valid());
  params.max_total_num_rows = static_cast<uint32_t>(cut.num_tokens);
  params.padded_batch_size = static_cast<uint32_t>(cut.num_ctas);
  params.seq_lens = step.seq_lens;
  return params;
}

template <int kHeadDim>
cudaError_t Launch(const Attention& op, const FlashInferStep& step, cudaStream_t stream) {
  const auto launch = [&]<int kTileRows>() {
    return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
        kTileRows, kHeadDim, kHeadDim, flashinfer::PosEncodingMode::kNone,
        /*USE_FP16_QK_REDUCTION=*/false, flashinfer::MaskMode::kCausal, PlainSoftmax>(
        MakeParams(op, step), step.cut.split ? reinterpret_cast<Element*>(step.partials) : nullptr,
        step.partial_lse, /*enable_pdl=*/HasDependents(), stream);
  };
  switch (step.cut.tile_rows) {
    case 16:
      return launch.template operator()<16>();
    case 64:
      return launch.template operator()<64>();
    default:
      return launch.template operator()<128>();
  }
}

}  // namespace

bool HasFlashInfer() { return true; }

cudaError_t LaunchTableStarts(const Tensor& rows, const Tensor& tables, const FlashInferStep& step,
                              cudaStream_t stream) {
  const auto stride = static_cast<int32_t>(tables.row_stride / 4);
  return LaunchKernel(TableStartsKernel, Grid(int64_t{step.cut.num_seqs} + 1, kThreads), kThreads,
                      0, stream, static_cast<const int32_t*>(rows.data), step.cut.num_seqs, stride,
                      static_cast<int32_t>(tables.rows()) * stride, step.table_starts);
}

cudaError_t LaunchFlashInfer(const Attention& op, const FlashInferStep& step, cudaStream_t stream) {
  try {
    return op.cache.head_dim == 64 ? Launch<64>(op, step, stream) : Launch<128>(op, step, stream);
  } catch (const std::exception&) {  // a size that FlashInfer's launcher does not take
    return cudaErrorInvalidConfiguration;
  }
}

}  // namespace tokamak::cuda
