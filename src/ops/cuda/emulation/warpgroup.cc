// wgmma. Each of the four warps computes 16 of the 64 rows by itself. It computes its products in
// the order in which it issued them, each at once or when it is waited for, as drawn. Until then
// the accumulators' registers are filled with 0xff.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "ops/cuda/emulation/capability.h"
#include "ops/cuda/emulation/choice.h"
#include "ops/cuda/emulation/machine.h"
#include "ops/cuda/emulation/primitives.h"
#include "ops/cuda/emulation/swizzle.h"

namespace tokamak::cuda::emulation {

namespace {

constexpr unsigned kAllLanes = 0xffffffff;
constexpr unsigned kWarps = 4;   // of a warpgroup
constexpr int kRows = 16;        // of a warp
constexpr size_t kDepth = 32;    // bytes along k of a product
constexpr size_t kChunk = 16;    // bytes that stay together in every layout
constexpr size_t kFragment = 4;  // registers of a lane that hold its part of A
constexpr uint32_t kPoison = 0xffffffff;

// A register array of each lane.
template <typename T>
using Registers = std::array<T*, kWarpLanes>;

// Accumulators that wgmma has written since the last wgmma.fence, or will write.
struct Tile {
  Registers<float> registers;
  int n = 0;
  int pending = 0;            // products that will add to it
  std::vector<float> values;  // [16, n]: without the pending products
};

// The registers of A when a product was issued.
struct Fragment {
  const uint32_t* first_lane;
  std::array<uint32_t, kFragment * kWarpLanes> values;
};

struct Product {
  WarpgroupProduct what;  // as the first lane issued it
  Registers<const uint32_t> a_registers;
  const float* sums;  // of the first lane; identifies the tile
  bool done = false;
};

struct ProductGroup {
  std::vector<Product> products;
  sanitizers::Context reader = nullptr;  // acts from the first product's issue on
};

}  // namespace

struct WarpProducts {
  bool fenced = false;  // there has been a wgmma.fence
  std::vector<WarpgroupProduct> issued;
  std::vector<Tile> tiles;
  std::vector<Fragment> fragments;  // used since the last wgmma.fence
  ProductGroup open;                // not committed yet
  std::vector<ProductGroup> groups;
};

namespace {

WarpProducts& ProductsOfWarp() {
  Warp& warp = *CurrentThread().warp;
  if (warp.products == nullptr) warp.products = std::make_shared<WarpProducts>();
  return *warp.products;
}

// Waits for the other lanes. The first lane that goes on then calls act(products of the warp, what
// each lane brought).
template <typename T, typename Act>
void ActAsWarp(const char* what, const T& mine, Act act) {
  struct Arrival {
    const T* brought;
    bool is_done = false;
  };
  Arrival arrival = {.brought = &mine};
  const uint64_t* const words = Exchange(kAllLanes, reinterpret_cast<uintptr_t>(&arrival), what);
  if (arrival.is_done) return;
  std::array<const T*, kWarpLanes> brought;
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    auto* const other = reinterpret_cast<Arrival*>(words[lane]);
    other->is_done = true;
    brought[lane] = other->brought;
  }
  act(ProductsOfWarp(), brought);
}

// How a descriptor says that a tile lies in shared memory.
struct Layout {
  uint32_t start;
  uint32_t leading;
  uint32_t stride;
  int span;  // of the swizzle
};

Layout Decode(uint64_t descriptor) {
  constexpr int kSpans[] = {0, 128, 64, 32};
  const auto field = [descriptor](int bit) {
    return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4;
  };
  const Layout layout = {.start = field(0),
                         .leading = field(16),
                         .stride = field(32),
                         .span = kSpans[descriptor >> 62]};
  // Refuses tiles that begin in the middle of a swizzle's pattern. Bits 49 to 51 are for these.
  const auto span = static_cast<uint32_t>(layout.span);
  if ((descriptor >> 49 & 7) != 0 || (span != 0 && layout.start % (8 * span) >= span)) {
    Fail(
        fmt::format("wgmma: the descriptor {:016x} is of a tile that does not begin where its "
                    "swizzle of {} bytes does, at a multiple of {}",
                    descriptor, span, 8 * span));
  }
  return layout;
}

// Returns the address of the 16-byte chunk number `chunk` of a tile's row. Rows lie along k, or
// without `k_together` along N.
uint32_t AddressOf(const Layout& layout, bool k_together, uint32_t row, uint32_t chunk) {
  const auto span = static_cast<uint32_t>(layout.span);
  uint32_t address = layout.start;
  if (span == 0) {
    const uint32_t rows = k_together ? layout.stride : layout.leading;
    const uint32_t chunks = k_together ? layout.leading : layout.stride;
    address += row / 8 * rows + chunk * chunks + row % 8 * kChunk;
  } else {
    const uint32_t at = chunk * kChunk;
    address += at / span * layout.leading + row / 8 * layout.stride + row % 8 * span + at % span;
  }
  return Swizzle(address, layout.span);
}

// Returns whether `bytes`, which the block holds at `offset`, are also what wgmma sees there.
bool IsPublished(const SharedBlock& block, size_t offset, const std::byte* bytes) {
  if (!block.published.empty()) {
    return std::memcmp(&block.published[offset], bytes, kChunk) == 0;
  }
  return std::all_of(bytes, bytes + kChunk, [](std::byte b) { return b == std::byte{0xff}; });
}

// Copies rows [first, first + count) of a tile, whose rows have `bytes` bytes.
std::vector<std::byte> ReadTile(sanitizers::Context reader, uint64_t descriptor, bool k_together,
                                uint32_t first, uint32_t count, size_t bytes) {
  const Layout layout = Decode(descriptor);
  const Cta& cta = *CurrentThread().cta;
  std::vector<std::byte> rows(count * bytes);
  for (size_t at = 0; at < rows.size(); at += kChunk) {
    const uint32_t address =
        AddressOf(layout, k_together, first + static_cast<uint32_t>(at / bytes),
                  static_cast<uint32_t>(at % bytes / kChunk));
    const auto holds = [address](const SharedBlock& block) {
      return block.address <= address && address + kChunk <= block.address + block.bytes;
    };
    const auto block = std::find_if(cta.shared.begin(), cta.shared.end(), holds);
    if (block == cta.shared.end()) {
      Fail(fmt::format("wgmma: the descriptor {:016x} leads out of shared memory", descriptor));
    }
    const size_t offset = address - block->address;
    const auto* const from = static_cast<const std::byte*>(block->memory.get()) + offset;
    sanitizers::NoteRead(reader, from, kChunk);
    std::memcpy(&rows[at], from, kChunk);
    if (!IsPublished(*block, offset, &rows[at])) {
      Fail(fmt::format(
          "wgmma: shared memory, {} bytes into an operand, was written while the product "
          "may read it, or before it without a fence.proxy.async",
          at));
    }
  }
  return rows;
}

unsigned WarpOfThread() { return CurrentThread().number / kWarpLanes; }

// [16, 32 bytes]
std::vector<std::byte> ReadA(sanitizers::Context reader, const Product& product) {
  if (product.what.a_registers == nullptr) {
    return ReadTile(reader, product.what.a, true, WarpOfThread() % kWarps * kRows, kRows, kDepth);
  }
  std::vector<std::byte> rows(kRows * kDepth);
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    for (size_t i = 0; i < kFragment; ++i) {
      const size_t row = lane / 4 + i % 2 * 8;
      std::memcpy(&rows[row * kDepth + i / 2 * (kDepth / 2) + lane % 4 * sizeof(uint32_t)],
                  &product.a_registers[lane][i], sizeof(uint32_t));
    }
  }
  return rows;
}

// Calls visit(register, value) for each of a tile's values.
template <typename Visit>
void ForEach(Tile& tile, Visit visit) {
  const auto n = static_cast<size_t>(tile.n);
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    for (size_t i = 0; i < n / 2; ++i) {
      const size_t row = lane / 4 + i % 4 / 2 * 8;
      const size_t column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      visit(tile.registers[lane][i], tile.values[row * n + column]);
    }
  }
}

Tile* FindTile(WarpProducts& products, const float* sums) {
  const auto found = std::find_if(products.tiles.begin(), products.tiles.end(),
                                  [sums](const Tile& t) { return t.registers[0] == sums; });
  return found == products.tiles.end() ? nullptr : &*found;
}

void CheckPoison(Tile& tile) {
  ForEach(tile, [](const float& place, float) {
    if (std::bit_cast<uint32_t>(place) == kPoison) return;
    Fail("wgmma: an accumulator was written before wgmma.wait_group");
  });
}

void Compute(WarpProducts& products, sanitizers::Context reader, Product& product) {
  const WarpgroupProduct& what = product.what;
  Tile& tile = *FindTile(products, product.sums);
  if (!what.accumulate) std::fill(tile.values.begin(), tile.values.end(), 0.0f);
  const std::vector<std::byte> a = ReadA(reader, product);
  const ptrdiff_t k = Is8Bit(what.type) ? kDepth : kDepth / 2;
  const auto n = static_cast<uint32_t>(what.n);
  const std::vector<std::byte> b =
      what.transposed_b
          ? ReadTile(reader, what.b, false, 0, static_cast<uint32_t>(k), n * sizeof(uint16_t))
          : ReadTile(reader, what.b, true, 0, n, kDepth);
  MultiplyAccumulate(Instruction::kWgmma, kArithmetic, {kRows, what.n, static_cast<int>(k)},
                     {.elements = a.data(), .type = what.type, .row_stride = k},
                     {.elements = b.data(),
                      .type = what.type,
                      .row_stride = what.transposed_b ? what.n : 1,
                      .column_stride = what.transposed_b ? 1 : k},
                     tile.values.data());
  product.done = true;
  if (--tile.pending > 0) return;
  CheckPoison(tile);
  ForEach(tile, [](float& place, float value) { place = value; });
}

void ComputeGroup(WarpProducts& products, ProductGroup& group) {
  for (Product& product : group.products) {
    if (!product.done) Compute(products, group.reader, product);
  }
}

// Ends reads that all lanes of the warp have waited for.
void EndReads(sanitizers::Context reader) {
  Cta& cta = *CurrentThread().cta;
  const size_t first = WarpOfThread() * kWarpLanes;
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    sanitizers::Order(reader, cta.threads[first + lane].actor);
  }
  EndContext(*cta.grid, reader);
}

// Computes all products that the warp has issued.
void ComputeAll(WarpProducts& products) {
  for (ProductGroup& group : products.groups) ComputeGroup(products, group);
  ComputeGroup(products, products.open);
}

// Hands the accumulators' registers over: nobody but wgmma may touch them from here on.
void Take(WarpProducts& products, const Registers<float>& registers, int n) {
  Tile* tile = FindTile(products, registers[0]);
  if (tile == nullptr) {
    tile = &products.tiles.emplace_back();
    *tile = {.registers = registers, .n = n, .pending = 0, .values = {}};
    tile->values.resize(static_cast<size_t>(kRows) * static_cast<size_t>(n));
    ForEach(*tile, [](const float& place, float& value) { value = place; });
  } else if (tile->n != n) {
    Fail(fmt::format("wgmma: n is {} and was {} for the same accumulators, without wgmma.fence", n,
                     tile->n));
  } else if (tile->pending > 0) {
    CheckPoison(*tile);
  } else {
    ForEach(*tile, [](const float& place, const float& value) {
      if (std::bit_cast<uint32_t>(place) == std::bit_cast<uint32_t>(value)) return;
      Fail("wgmma: an accumulator was written, and no wgmma.fence follows");
    });
  }
  ++tile->pending;
  ForEach(*tile, [](float& place, float) { place = std::bit_cast<float>(kPoison); });
}

// A's registers, too, may only be written before a wgmma.fence.
void CheckFragment(WarpProducts& products, const Registers<const uint32_t>& registers) {
  Fragment fragment = {.first_lane = registers[0], .values = {}};
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    std::copy_n(registers[lane], kFragment, &fragment.values[lane * kFragment]);
  }
  for (const Fragment& known : products.fragments) {
    if (known.first_lane != fragment.first_lane) continue;
    if (known.values == fragment.values) return;
    Fail("wgmma: a register of A was written, and no wgmma.fence follows");
  }
  products.fragments.push_back(fragment);
}

bool AreEqual(const WarpgroupProduct& a, const WarpgroupProduct& b) {
  return a.type == b.type && a.n == b.n && a.transposed_b == b.transposed_b &&
         a.accumulate == b.accumulate && a.b == b.b &&
         (a.a_registers == nullptr) == (b.a_registers == nullptr) &&
         (a.a_registers != nullptr || a.a == b.a);
}

std::string Describe(const WarpgroupProduct& product) {
  return fmt::format(
      "n = {}, {}, a {}, b {:016x}", product.n, product.accumulate ? "added" : "from zero",
      product.a_registers != nullptr ? "in registers" : fmt::format("{:016x}", product.a),
      product.b);
}

// Notes a product of the warp. The four warps must issue equal products in the same order.
void Note(WarpProducts& products, const WarpgroupProduct& product) {
  Cta& cta = *CurrentThread().cta;
  const size_t first = WarpOfThread() / kWarps * kWarps, number = products.issued.size();
  if (first + kWarps > cta.warps.size() || cta.threads.size() % kWarpLanes != 0) {
    Fail("wgmma by a warpgroup of fewer than 4 warps");
  }
  for (size_t warp = first; warp < first + kWarps; ++warp) {
    const auto& other = cta.warps[warp].products;
    if (other == nullptr || other->issued.size() <= number) continue;
    if (AreEqual(other->issued[number], product)) continue;
    Fail(fmt::format("wgmma: the warps of a warpgroup differ: {}; in warp {}: {}",
                     Describe(product), warp, Describe(other->issued[number])));
  }
  products.issued.push_back(product);
}

}  // namespace

void WarpgroupMultiply(const WarpgroupProduct& product, float* sums) {
  struct Mine {
    const WarpgroupProduct& product;
    float* sums;
  };
  const auto issue = [](WarpProducts& products, const std::array<const Mine*, kWarpLanes>& lanes) {
    const WarpgroupProduct& what = lanes[0]->product;
    Product issued = {.what = what, .a_registers = {}, .sums = lanes[0]->sums};
    Registers<float> registers;
    for (size_t lane = 0; lane < kWarpLanes; ++lane) {
      const WarpgroupProduct& other = lanes[lane]->product;
      if (!AreEqual(what, other)) {
        Fail(fmt::format("wgmma: the lanes of a warp differ: {}; in lane {}: {}", Describe(what),
                         lane, Describe(other)));
      }
      registers[lane] = lanes[lane]->sums;
      issued.a_registers[lane] = other.a_registers;
    }
    Note(products, what);
    if (!products.fenced) Fail("wgmma without a wgmma.fence before it");
    if (what.a_registers != nullptr) CheckFragment(products, issued.a_registers);
    Take(products, registers, what.n);
    const sanitizers::Context issuer = CurrentThread().actor.Fenced();
    if (products.open.products.empty()) products.open.reader = sanitizers::Fork(issuer);
    sanitizers::Order(issuer, products.open.reader);
    products.open.products.push_back(issued);
    if (Choose(2) == 0) ComputeAll(products);
  };
  const InMachine in;
  RequireHopper("wgmma.mma_async");
  ActAsWarp("wgmma.mma_async", Mine{product, sums}, issue);
}

void Publish(Cta& cta, const void* shared, size_t bytes) {
  for (Cta* other : cta.cluster->ctas) {
    const SharedPlace place = FindShared(*other, shared);
    if (place.block == nullptr) continue;
    place.block->published.resize(place.block->bytes, std::byte{0xff});
    std::memcpy(&place.block->published[place.offset], shared, bytes);
  }
}

// Also shows to wgmma what other threads of the CTA have stored, which a GPU would not.
void FenceAsyncProxy() {
  const InMachine in;
  RequireHopper("fence.proxy.async");
  Cta& cta = *CurrentThread().cta;
  sanitizers::Actor& actor = CurrentThread().actor;
  sanitizers::Order(actor.context, actor.Fenced());
  for (const SharedBlock& block : cta.shared) Publish(cta, block.memory.get(), block.bytes);
}

void FenceRegisters() {
  const InMachine in;
  ActAsWarp("wgmma.fence", 0, [](WarpProducts& products, const auto&) {
    products.fenced = true;
    products.fragments.clear();
    std::erase_if(products.tiles, [](const Tile& tile) { return tile.pending == 0; });
  });
}

void CommitProducts() {
  const InMachine in;
  ActAsWarp("wgmma.commit_group", 0, [](WarpProducts& products, const auto&) {
    products.groups.push_back(std::exchange(products.open, {}));
  });
}

void WaitForProducts(int pending) {
  const InMachine in;
  ActAsWarp("wgmma.wait_group", pending, [](WarpProducts& products, const auto& lanes) {
    const ptrdiff_t kept = *lanes[0];
    for (const int* other : lanes) {
      if (*other != kept) Fail("the lanes of a warp leave different numbers of wgmma groups");
    }
    auto& groups = products.groups;
    const auto end = groups.end() - std::min(kept, std::ssize(groups));
    for (auto group = groups.begin(); group != end; ++group) {
      ComputeGroup(products, *group);
      if (!group->products.empty()) EndReads(group->reader);
    }
    groups.erase(groups.begin(), end);
  });
}

void CheckProductsAreDone(const Cta& cta) {
  for (size_t warp = 0; warp < cta.warps.size(); ++warp) {
    const auto count = [&cta](size_t i) {
      const auto& products = cta.warps[i].products;
      return products == nullptr ? 0 : products->issued.size();
    };
    const size_t first = warp / kWarps * kWarps;
    if (count(warp) != count(first)) {
      Fail(fmt::format("warp {} ended after {} wgmma, and warp {} of its warpgroup after {}", warp,
                       count(warp), first, count(first)));
    }
    if (count(warp) == 0) continue;
    const WarpProducts& products = *cta.warps[warp].products;
    const auto& groups = products.groups;
    if (!products.open.products.empty() ||
        std::any_of(groups.begin(), groups.end(),
                    [](const ProductGroup& group) { return !group.products.empty(); })) {
      Fail(fmt::format("warp {} ended without waiting for its wgmma", warp));
    }
  }
}

uint32_t SharedAddress(const void* shared) {
  const SharedPlace place = FindShared(*CurrentThread().cta, shared);
  if (place.block == nullptr) Fail("an address that is not in the CTA's shared memory");
  return place.block->address + static_cast<uint32_t>(place.offset);
}

}  // namespace tokamak::cuda::emulation
