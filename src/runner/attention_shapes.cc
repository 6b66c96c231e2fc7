#include "runner/attention_shapes.h"

#include "base/error.h"

namespace tokamak {

Result<std::vector<AttentionShape>> AttentionShapes(const nn::CacheLayout& cache,
                                                    const RunnerShape& shape) {
  std::vector<AttentionShape> shapes(cache.groups.size());
  std::vector<const nn::KvLayerSpec*> first(cache.groups.size());
  for (const nn::KvLayerSpec& layer : cache.layers) {
    AttentionShape& group = shapes[static_cast<size_t>(layer.group)];
    if (group.num_heads == 0) {
      group = layer.Attention();
      group.block_size = shape.block_size;
      group.window = cache.groups[static_cast<size_t>(layer.group)].window;
      group.kv_dtype = shape.kv_dtype;
      group.bidirectional = cache.bidirectional_images && shape.max_encoder_rows > 0;
      group.max_seqs = shape.max_seqs + shape.max_step_drafts;  // StepShape::MaxPaddedSeqs
      group.max_tokens = shape.max_step_tokens;
      group.max_blocks_per_seq = (shape.max_context + shape.block_size - 1) / shape.block_size;
      first[static_cast<size_t>(layer.group)] = &layer;
    } else if (!layer.SameShape(*first[static_cast<size_t>(layer.group)])) {
      return Unimplemented("the layers of cache group {} have different head shapes", layer.group);
    }
  }
  return shapes;
}

}  // namespace tokamak
