#include "tokenizer/escaped_space.h"

namespace tokamak {

std::vector<DecoderStep> UnescapeSpaces(bool drop_first) {
  DecoderStep spaces, fuse, first;
  spaces.kind = DecoderStep::Kind::kReplace;
  spaces.pattern.text = kEscapedSpace;
  spaces.content = " ";
  if (!drop_first) return {spaces};
  fuse.kind = DecoderStep::Kind::kFuse;
  first.kind = DecoderStep::Kind::kStrip;
  first.content = " ";
  first.start = 1;
  return {spaces, fuse, first};
}

}  // namespace tokamak
