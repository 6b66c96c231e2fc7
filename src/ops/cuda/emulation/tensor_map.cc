#include "ops/cuda/emulation/tensor_map.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include <cuda_runtime_api.h>
#include "ops/cuda/emulation/memory_trace.h"
#include "ops/cuda/emulation/swizzle.h"

namespace tokamak::cuda::emulation {
namespace {

constexpr uint64_t kMagic = 0x7e5a0b0c5;
constexpr size_t kChunkBytes = 16;

// Returns 0 for types that the emulator lacks, such as packed ones.
unsigned ElementBytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

bool IsFloat(CUtensorMapDataType type) {
  return type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 ||
         (type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT32 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ);
}

unsigned SwizzleSpan(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      return 0;
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return 64;
    default:
      return 128;
  }
}

// Returns whether all values are in [low, high].
template <typename T>
bool AreWithin(const T* values, size_t count, uint64_t low, uint64_t high) {
  return std::all_of(values, values + count,
                     [&](uint64_t value) { return low <= value && value <= high; });
}

// Calls move(offset in the box, address in the tensor, bytes) for each part of a box's row that
// lies in the tensor.
template <typename Move>
void ForEachRow(const TensorMap& map, const Coordinates& at, uint64_t size_of_row,
                const Move& move) {
  const int64_t width = map.box[0], size = static_cast<int64_t>(size_of_row);
  const int64_t begin = std::clamp<int64_t>(-int64_t{at[0]}, 0, width);
  const int64_t end = std::clamp<int64_t>(size - at[0], begin, width);
  const size_t num_rows = map.BoxBytes() / (map.box[0] * size_t{map.element_bytes});
  for (size_t row = 0; row < num_rows; ++row) {
    bool inside = begin < end;
    auto offset = (at[0] + begin) * map.element_bytes;
    size_t rest = row;
    for (size_t d = 1; d < map.rank; ++d) {
      const int64_t place = at[d] + static_cast<int64_t>(rest % map.box[d]);
      rest /= map.box[d];
      inside = inside && place >= 0 && place < static_cast<int64_t>(map.sizes[d]);
      offset += place * static_cast<int64_t>(map.strides[d]);
    }
    if (!inside) continue;
    const auto first = static_cast<size_t>(static_cast<int64_t>(row) * width + begin);
    move(first * map.element_bytes, map.data + offset,
         static_cast<size_t>(end - begin) * map.element_bytes);
  }
}

// Calls move(offset in the box, offset in shared memory) for each chunk.
template <typename Move>
void ForEachChunk(const TensorMap& map, const void* shared, const Move& move) {
  const auto base = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(shared));
  for (uint32_t place = 0; place < map.BoxBytes(); place += kChunkBytes) {
    move(place, Swizzle(base + place, map.span) - base);
  }
}

}  // namespace

size_t TensorMap::BoxBytes() const {
  size_t bytes = element_bytes;
  for (size_t d = 0; d < rank; ++d) bytes *= box[d];
  return bytes;
}

bool ReadTensorMap(const CUtensorMap& from, TensorMap& to) {
  std::memcpy(&to, &from, sizeof(to));
  return to.magic == kMagic;
}

std::vector<std::byte> ReadBox(const TensorMap& map, const Coordinates& at,
                               sanitizers::Context context) {
  std::vector<std::byte> bytes(map.BoxBytes());
  ForEachRow(map, at, map.sizes[0], [&](size_t place, const std::byte* from, size_t count) {
    sanitizers::NoteRead(context, from, count);
    MemoryTrace::NoteCopy(from, count, false);
    std::memcpy(&bytes[place], from, count);
  });
  return bytes;
}

// A store is cut off at multiples of 16 bytes, as on an H200: it overwrites the padding of a row.
void WriteBox(const TensorMap& map, const Coordinates& at, const std::vector<std::byte>& bytes,
              sanitizers::Context context) {
  const uint64_t per_chunk = kChunkBytes / map.element_bytes;
  const uint64_t size = (map.sizes[0] + per_chunk - 1) / per_chunk * per_chunk;
  ForEachRow(map, at, size, [&](size_t place, std::byte* to, size_t count) {
    sanitizers::NoteWrite(context, to, count);
    MemoryTrace::NoteCopy(to, count, true);
    std::memcpy(to, &bytes[place], count);
  });
}

std::vector<std::byte> ReadSwizzled(const TensorMap& map, const void* shared) {
  std::vector<std::byte> bytes(map.BoxBytes());
  ForEachChunk(map, shared, [&](uint32_t place, uint32_t swizzled) {
    std::memcpy(&bytes[place], static_cast<const std::byte*>(shared) + swizzled, kChunkBytes);
  });
  return bytes;
}

void WriteSwizzled(const TensorMap& map, void* shared, const std::vector<std::byte>& bytes) {
  ForEachChunk(map, shared, [&](uint32_t place, uint32_t swizzled) {
    std::memcpy(static_cast<std::byte*>(shared) + swizzled, &bytes[place], kChunkBytes);
  });
}

}  // namespace tokamak::cuda::emulation

namespace emulation = tokamak::cuda::emulation;

// Refuses what the driver's documentation refuses. Whatever else a GPU can do but no kernel here
// needs is "not supported".
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (map == nullptr || address == nullptr || sizes == nullptr || box == nullptr ||
      steps == nullptr || rank < 1 || rank > emulation::kMaxRank ||
      (strides == nullptr && rank > 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto is_multiple = [](uint64_t value) { return value % 16 == 0; };
  const bool is_tensor = is_multiple(reinterpret_cast<uintptr_t>(address)) &&
                         emulation::AreWithin(sizes, rank, 1, uint64_t{1} << 32) &&
                         emulation::AreWithin(strides, rank - 1, 0, (uint64_t{1} << 40) - 1) &&
                         std::all_of(strides, strides + rank - 1, is_multiple);
  const bool is_box = reinterpret_cast<uintptr_t>(map) % 64 == 0 &&
                      emulation::AreWithin(box, rank, 1, 256) &&
                      emulation::AreWithin(steps, rank, 1, 8);
  const bool is_kind = type <= CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B &&
                       interleave <= CU_TENSOR_MAP_INTERLEAVE_32B &&
                       swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B &&
                       promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
                       fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA &&
                       (fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || emulation::IsFloat(type));
  if (!is_tensor || !is_box || !is_kind) return CUDA_ERROR_INVALID_VALUE;
  const unsigned element_bytes = emulation::ElementBytes(type);
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || element_bytes == 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const unsigned span = emulation::SwizzleSpan(swizzle);
  const unsigned width = box[0] * element_bytes;
  if (!is_multiple(width) || (span != 0 && width > span)) return CUDA_ERROR_INVALID_VALUE;
  // No document says how rows that are narrower than their swizzle lie in shared memory.
  if ((span != 0 && width < span) || swizzle > CU_TENSOR_MAP_SWIZZLE_128B ||
      fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
      !emulation::AreWithin(steps + 1, rank - 1, 1, 1)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  emulation::TensorMap made = {};
  made.magic = emulation::kMagic;
  made.data = static_cast<std::byte*>(address);
  made.rank = static_cast<uint8_t>(rank);
  made.element_bytes = static_cast<uint8_t>(element_bytes);
  made.span = static_cast<uint8_t>(span);
  std::copy_n(sizes, rank, made.sizes);
  std::copy_n(box, rank, made.box);
  if (rank > 1) std::copy_n(strides, rank - 1, made.strides + 1);
  std::memcpy(map, &made, sizeof(made));
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool known = std::string_view(symbol) == "cuTensorMapEncodeTiled";
  *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
