#!/usr/bin/env python3
"""Plants faults in kernels, one at a time, and demands that the emulator's tests find each.

    tests/emulator/plant_faults.py BUILD [--pick N] [--only TEXT]

BUILD has the emulated backend and the test binaries. A fault changes one place of a source.
Everything that depends on it is compiled with the build's own commands into a temporary folder;
then the test that should find it runs with a few seeds until one fails. --pick N: only N faults,
drawn with the commit's hash as seed. Prints a line for each and exits 1 if one was not found.
"""
import argparse
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CUDA = 'src/ops/cuda'
LIBRARY = 'emulated/libtokamak_cuda.so'
CONFORMANCE = 'src/ops/cuda/emulation/conformance_emulated'
KERNELS = 'src/ops/cuda/emulation/cuda_kernels_test'
SEEDS = (1, 2, 3, 4, 0)
PATIENCE = 600  # seconds: a test that hangs has found the fault too

ATTENTION = ('src/ops/ops_test', '*AttentionOps.MixedBatches*/cuda_plain')
RANGES = ('src/ops/ops_test', '*AttentionOps.QueriesOfARange*/cuda')
RANGES_PLAIN = ('src/ops/ops_test', '*AttentionOps.QueriesOfARange*/cuda_plain')
SPLITS = ('src/ops/ops_test', '*AttentionOps.LongSequences*/cuda_plain')
GRAPH_ATTENTION = ('src/ops/ops_test', '*AttentionOps.AGraphFits*/cuda')
EDITED_SCORES = ('src/ops/ops_test', '*AttentionOps.EditedScores*/cuda')
NORM = ('src/ops/ops_test', '*NormOps*/cuda')
LINEAR = ('src/ops/ops_test', '*LinearOps.LinearMatches*/cuda_plain')
ELEMENTS = ('src/ops/ops_test', '*ElementwiseOps*/cuda')
COPIES = ('src/ops/ops_test', '*CopyOps*/cuda')
DRAWS = ('src/ops/cuda/cuda_backend_test', '*CudaDraws*/128256')
# With so few tokens many histories repeat themselves.
REPEATS = ('src/ops/cuda/cuda_backend_test', '*CudaDraws*/48')
BREAKERS = ('src/ops/cuda/cuda_backend_test', 'CudaSampling.RepeatsEndAtSequenceBreakers')
PROPOSALS = ('src/ops/cuda/cuda_backend_test', 'CudaSampling.ProposesWhatTheHostDoes')
PRIMITIVES = (CONFORMANCE, None)
GATE_UP = ('src/ops/ops_test', '*GateUpOps.*/cuda')
SKINNY = (KERNELS, '*SkinnyGemm*')
GROUPED = (KERNELS, '*GroupedGemm*')
PLAIN_GROUPED = ('src/ops/ops_test', '*GroupedOps*/cuda_plain')
ROUTER = (KERNELS, 'RouterLinear.*')
ROUTES = ('src/ops/ops_test', '*MoeOps.R*/cuda:*MoeOps.E*/cuda')
COMBINE = ('src/ops/ops_test', '*MoeOps.Combines*/cuda')
MMA_ATTENTION = (KERNELS, 'MmaAttention.*')
LATENT = (KERNELS, 'LatentAttention.*')
WIDE_LATENT = (KERNELS, 'LatentAttention.W*:LatentAttention.LatentsThat*')
FP8_ATTENTION = (KERNELS, 'MmaAttention.*Fp8*:MmaAttention.What*')
EXPANDED = (KERNELS, 'ExpandedAttention.*')
WIDE_ATTENTION = (KERNELS, 'MmaAttention.Both*:MmaAttention.Values*')
GATED_DELTA = ('src/ops/ops_test', '*GatedDeltaOps*/cuda')
RANKS = ('src/ops/cuda/cuda_backend_test', 'CudaRanks.*')
TENSOR_MAPS = 'conformance/tensor_maps.cu'
DEPENDENT = 'conformance/dependent_launch.cu'

# Name, source, a text that occurs in it once, its replacement, the source to compile (None: the
# changed one), the test.
FAULTS = [
    ('an arrival that does not wait for its copies', 'conformance/conformance.cu',
     'ptx::ArriveWhenCopied(&copies', 'ptx::Arrive(&copies', None, PRIMITIVES),
    ('rows of keys are read before they are there', 'attention.cu',
     '    __syncthreads();\n    if constexpr (kExpands) {\n      Expand',
     '    if constexpr (kExpands) {\n      Expand', 'attention.cu', ATTENTION),
    ('a chunk is read before it is there', 'attention.cu',
     'CopyValues();\n    }\n    __syncthreads();', 'CopyValues();\n    }', 'attention.cu',
     ATTENTION),
    ('queries are overwritten while they are read', 'attention.cu',
     "__syncthreads();  // the last tile's queries have been used", '', 'attention.cu', ATTENTION),
    ('a row does not see its own key', 'attention.cu',
     'return key <= LastKey(row) && FirstKey', 'return key < LastKey(row) && FirstKey',
     'attention.cu', ATTENTION),
    ('a window is one key too wide', 'attention.cu', 'max(0, Position(row) + 1 - a_.window)',
     'max(0, Position(row) - a_.window)', 'attention.cu', ATTENTION),
    ('queries of a range see only what is before them', 'attention.cu',
     'max(Position(row), unit_.shared_last_key)', 'Position(row)', 'attention.cu', RANGES_PLAIN),
    ('queries of a range with other windows are alike', 'mma_attention.cu',
     'seen.all_from == seen.from && seen.all_to', 'seen.all_to', 'mma_attention.cu', RANGES),
    ('splits are added without their weights', 'attention.cu',
     'sum = fmaf(other.sum, weight, __fmul_rn(sum, factor));', 'sum = other.sum + sum;',
     'attention.cu', ATTENTION),
    ('the last part merges one split too early', 'attention_splits.cuh', '+ own == all;',
     '+ own + 1 == all;', 'attention.cu', SPLITS),
    ('tiles of a wide unit share their partials', 'attention.cu',
     'unit.partial += tile * (unit.end_split - unit.begin_split);', '', None, EDITED_SCORES),
    ('a sequence of a graph has wide tiles', 'attention_plan.cc',
     'kMinWideTokens = kMaxGraphQueries + 1;', 'kMinWideTokens = kMaxGraphQueries;', None,
     GRAPH_ATTENTION),
    ('a counter is not set back', 'attention_splits.cuh', 'if (is_last) *counter = 0;', '',
     'attention.cu', SPLITS),
    ('a sum reads warps that have not written', 'device.cuh',
     'sums[threadIdx.x / kWarp] = value;\n  __syncthreads();',
     'sums[threadIdx.x / kWarp] = value;', 'elementwise.cu', NORM),
    ('a shuffle leaves half of the lanes out', 'device.cuh',
     'value += __shfl_xor_sync(kAllLanes,', 'value += __shfl_xor_sync(0xffffu,',
     'elementwise.cu', NORM),
    ('a sum is overwritten while others read it', 'layer_norm.cu',
     "__syncthreads();  // all have read BlockSum's memory", '', None, NORM),
    ('a gathered row is the next one', 'elementwise.cu', 'a.source + row * a.source_stride',
     'a.source + (row + 1) * a.source_stride', 'elementwise.cu', COPIES),
    ('padding is copied', 'elementwise.cu', 'if (row < 0) return;', '', None, COPIES),
    ('a norm reads before the kernel ahead has ended', 'elementwise.cu',
     'ptx::WaitForKernelAhead();\n#pragma unroll\n  for (int g = 0; g < kFours; ++g) '
     'row.Read(column(g), added[g], values[g]);',
     '#pragma unroll\n  for (int g = 0; g < kFours; ++g) row.Read(column(g), added[g], values[g]);\n'
     '  ptx::WaitForKernelAhead();', 'elementwise.cu', ELEMENTS),
    ("a norm's copy for experts is as far apart as itself", 'elementwise.cu',
     'token * a_.copy_stride', 'token * a_.out_stride', None, NORM),
    ('one thread of a gate waits for the kernel ahead', 'elementwise.cu',
     'ptx::WaitForKernelAhead();\n  const int64_t t = blockIdx.x;\n  const auto* gate',
     'if (threadIdx.x == 0) ptx::WaitForKernelAhead();\n  const int64_t t = blockIdx.x;\n'
     '  const auto* gate', 'elementwise.cu', ELEMENTS),
    ('one thread of a rotation waits for the kernel ahead', 'rope.cu',
     'if constexpr (kEarly) ptx::WaitForKernelAhead();',
     'if constexpr (kEarly) {\n    if (threadIdx.x == 0) ptx::WaitForKernelAhead();\n  }', 'rope.cu',
     ELEMENTS),
    ('one thread of an unaligned rotation waits for the kernel ahead', 'rope.cu',
     'if constexpr (!kEarly) ptx::WaitForKernelAhead();',
     'if constexpr (!kEarly) {\n    if (threadIdx.x == 0) ptx::WaitForKernelAhead();\n  }', 'rope.cu',
     ELEMENTS),
    ('a tile is used before it is loaded', 'plain_tile.cuh',
     'cols, k, w);\n    __syncthreads();', 'cols, k, w);', 'linear.cu', LINEAR),
    ('a tile is loaded before it has been used', 'plain_tile.cuh',
     '    }\n    __syncthreads();\n  }', '    }\n  }', 'linear.cu', LINEAR),
    ('a tile is read transposed', 'plain_tile.cuh', 'w[Column()][i], sums[j]',
     'w[i][Column()], sums[j]', 'linear.cu', LINEAR),
    ('a reduction reads warps that have not written', 'cta.cuh',
     'partial[threadIdx.x / kWarp] = value;\n  __syncthreads();',
     'partial[threadIdx.x / kWarp] = value;', 'sample.cu', DRAWS),
    ('a scan takes in a lane too few', 'cta.cuh', 'if (lane >= distance)',
     'if (lane > distance)', 'sample.cu', DRAWS),
    ('bins are cleared while others count', 'sample_filters.cuh',
     'memory.bins[i * kCtaThreads + threadIdx.x] = 0;\n  __syncthreads();',
     'memory.bins[i * kCtaThreads + threadIdx.x] = 0;', 'sample.cu', DRAWS),
    ('some threads skip a barrier', 'sample_filters.cuh',
     'const int found = memory.found;\n  if (found >= 0) *target -= memory.before;\n'
     '  __syncthreads();',
     'const int found = memory.found;\n  if (found >= 0) *target -= memory.before;\n'
     '  if (threadIdx.x < 512) __syncthreads();', 'sample.cu', DRAWS),
    ('a proposal forgets the one before', 'sample_edits.cuh', 'p.max_proposals, p.number, row',
     'p.max_proposals, max(0, p.number - 1), row', 'sample.cu', PROPOSALS),
    ('a proposal takes earlier ones for older tokens', 'sample_edits.cuh', 'row.position - p.number};',
     'row.position};', 'sample.cu', PROPOSALS),
    ('proposals go on behind an unlikely one', 'sample.cu',
     'p.max_proposals + p.number - 1] == kNotDrawn;', 'p.max_proposals + p.number - 1] == -2;',
     'sample.cu', PROPOSALS),
    ('unlikely proposals end only those of rows with logprobs', 'sample.cu',
     'slot.top_logprobs = a.proposals.least_logprob > -INFINITY ? 0 : -1;', '', 'sample.cu',
     PROPOSALS),
    ('a bias writes behind a draft model\'s row', 'sample_edits.cuh',
     '    if (token >= row.size) continue;\n', '', 'sample.cu', PROPOSALS),
    ('DRY writes behind a draft model\'s row', 'sample_edits.cuh',
     '    if (id >= row.size) continue;\n', '', 'sample.cu', PROPOSALS),
    ('a bad word writes behind a draft model\'s row', 'sample_edits.cuh',
     '    if (last >= row.size) continue;\n', '', 'sample.cu', PROPOSALS),
    ('a missing proposal is a draft model\'s input', 'sample.cu', 'token < 0 ? 0 : token;',
     'token;', 'sample.cu', PROPOSALS),
    ('a benchmark reports what the model would draw', 'sample.cu',
     '      a.records[index].token = token;\n', '', 'sample.cu',
     ('src/ops/cuda/cuda_backend_test', 'CudaSampling.AcceptsTheDrafts*')),
    ('a repeat goes across a sequence breaker', 'sample_edits.cuh',
     'if (nearest < window) {', 'if (nearest < 0) {', 'sample.cu', BREAKERS),
    ('lengths of repeats outlive their draw', 'sample_edits.cuh',
     'atomicExch(&slot.dry_lengths[id], 0) - 1', 'slot.dry_lengths[id] - 1', 'sample.cu', REPEATS),
    ('the least likely of the listed tokens comes first', 'sampler.cc',
     'a.logit > b.logit ||', 'a.logit < b.logit ||', None, DRAWS),
    ('cp.async is not waited for', 'conformance/conformance.cu',
     'ptx::WaitForCopies<kStages - 2>();', 'ptx::WaitForCopies<kStages - 1>();', None, PRIMITIVES),
    ('a phase has the wrong parity', 'conformance/conformance.cu',
     'ptx::WaitForPhase(&memory->full[b], step / 2 % 2);',
     'ptx::WaitForPhase(&memory->full[b], (step / 2 + 1) % 2);', None, PRIMITIVES),
    ('a buffer is filled before it has been read', 'conformance/conformance.cu',
     'if (step >= 2) ptx::WaitForPhase(&memory->empty[b], (step / 2 - 1) % 2);', '', None,
     PRIMITIVES),
    ('a named barrier counts one warp too few', 'conformance/conformance.cu',
     'ptx::SyncNamed(barrier, 2 * kWarp);\n    value', 'ptx::SyncNamed(barrier, kWarp);\n    value',
     None, PRIMITIVES),
    ('a CTA ends while its neighbour reads', 'conformance/conformance.cu',
     'ptx::SyncCluster();  // nobody ends while others read', '', None, PRIMITIVES),
    ('a barrier of the grid is passed a round early', 'conformance/conformance.cu',
     'ptx::SyncGrid(counter, round);', 'ptx::SyncGrid(counter, round - 1);', None, PRIMITIVES),
    ('two fragments are exchanged', 'conformance/conformance.cu',
     'for (unsigned i = 0; i < 4; ++i) a[i] = in[i * kWarp + lane];',
     'for (unsigned i = 0; i < 4; ++i) a[i ^ 1] = in[i * kWarp + lane];', None, PRIMITIVES),
    ('sums of wgmma are not waited for', 'conformance/wgmma.cu',
     'ptx::WaitForProducts<0>();', '', None, PRIMITIVES),
    ('operands of wgmma are overwritten while it may read them', 'conformance/wgmma.cu',
     'ptx::WaitForProducts<1>();', 'ptx::WaitForProducts<2>();', None, PRIMITIVES),
    ('operands of wgmma are overwritten by warps that are ahead', 'conformance/wgmma.cu',
     'the one before this\n    __syncthreads();', 'the one before this', None, PRIMITIVES),
    ('registers of a change while wgmma may read them', 'conformance/wgmma.cu',
     'ptx::CommitProducts();',
     'ptx::CommitProducts();\n    fragments[tile * F::kProducts][0] = 0;', None, PRIMITIVES),
    ('registers are given to wgmma without a fence', 'conformance/wgmma.cu',
     'ptx::FenceRegisters();', '', None, PRIMITIVES),
    ('operands are stored for wgmma without a fence', 'conformance/wgmma.cu',
     'ptx::FenceAsyncProxy();', '', None, PRIMITIVES),
    ('a descriptor has the wrong stride', 'conformance/wgmma.cu',
     'kSpan, 16, 8 * kSpan)', 'kSpan, 16, 4 * kSpan)', None, PRIMITIVES),
    ('a descriptor has leading and stride exchanged', 'conformance/wgmma.cu',
     'kDepth / 2 * kSpan, 8 * kSpan)', '8 * kSpan, kDepth / 2 * kSpan)', None, PRIMITIVES),
    ('two registers of a are exchanged', 'conformance/wgmma.cu',
     'g + i % 2 * 8, p * 8 + i / 2 * 4 + t', 'g + i / 2 * 8, p * 8 + i % 2 * 4 + t', None,
     PRIMITIVES),
    ('a swizzle takes the wrong bits of the row', 'conformance/wgmma.cu',
     'row % 8 / (8 / kChunks)', 'row % kChunks', None, PRIMITIVES),
    ('a tensor map has another swizzle', TENSOR_MAPS, 'tensor.data = const_cast<void*>(data);',
     'tensor.data = const_cast<void*>(data);\n  if (tensor.swizzle == 32) tensor.swizzle = 0;', None,
     PRIMITIVES),
    ('a box begins at the coordinates of its neighbour', TENSOR_MAPS,
     'ptx::LoadBox(memory->data[i % 2], &map, plan.at[i],',
     'ptx::LoadBox(memory->data[i % 2], &map, plan.at[i ^ 1],', None, PRIMITIVES),
    ('a box is overwritten before its store has read it', TENSOR_MAPS,
     'if (threadIdx.x == 0) ptx::WaitForStoreReads<1>();', '', None, PRIMITIVES),
    ('a stored box is read before it has been written', TENSOR_MAPS, 'ptx::WaitForStores<0>();',
     'ptx::WaitForStoreReads<0>();', None, PRIMITIVES),
    ('a kernel does not wait for the one ahead', DEPENDENT, 'ptx::WaitForKernelAhead();', '', None,
     PRIMITIVES),
    ('a kernel reads before it waits for the one ahead', DEPENDENT,
     'ptx::WaitForKernelAhead();\n  const uint32_t value = ahead[(i + kThreads / 2) % kCount];',
     'const uint32_t value = ahead[(i + kThreads / 2) % kCount];\n  ptx::WaitForKernelAhead();',
     None, PRIMITIVES),
    ('a stage is requested while wgmma may read it', 'wgmma_tiles.cuh',
     'ptx::WaitForProducts<1>();', 'ptx::WaitForProducts<2>();', 'skinny_gemm.cu', SKINNY),
    ('tokens are requested before the kernel ahead has ended', 'skinny_gemm.cu',
     'ptx::WaitForKernelAhead();\n    ptx::LaunchDependents();\n    place = BeginningOf(blockIdx.x);\n'
     '    for (unsigned i = 0; i < early; ++i, Advance(place)) copies_.LoadTokens(i, place);',
     'ptx::LaunchDependents();\n    place = BeginningOf(blockIdx.x);\n'
     '    for (unsigned i = 0; i < early; ++i, Advance(place)) copies_.LoadTokens(i, place);\n'
     '    ptx::WaitForKernelAhead();', None, SKINNY),
    ('a stage is multiplied before its tokens are there', 'skinny_gemm.cu',
     'memory.ring.Expect(fill, static_cast<int>(sizeof(typename S::Stage)));',
     'memory.ring.Expect(fill, S::kBoxes * S::kWeightBytes);', None, SKINNY),
    ('a slot is free when one warp has released it', 'skinny_gemm.cu',
     'memory.ring.Init(S::kConsumers / kWarp);', 'memory.ring.Init(1);', None, SKINNY),
    ('a slot that lanes fill is free when one warp has released it', 'skinny_gemm.cu',
     'memory.ring.Init(S::kConsumers / kWarp, kWarp);', 'memory.ring.Init(1, kWarp);', None,
     SKINNY),
    ('a stage is multiplied when half of the lanes have copied', 'grouped_gemm.cu',
     'memory.ring.Init(S::kConsumers / kWarp, kWarp);',
     'memory.ring.Init(S::kConsumers / kWarp, kWarp / 2);', None, GROUPED),
    ('a stage is multiplied before the copies of its lanes are done', 'ring.cuh',
     'ptx::ArriveWhenCopied(&filled[Slot(fill)]);', 'ptx::Arrive(&filled[Slot(fill)]);',
     'skinny_gemm.cu', SKINNY),
    ('chunks lie where TMA does not put them', 'mma_tiles.cuh', '(chunk ^ i % 8) * kChunkBytes',
     'chunk * kChunkBytes', 'skinny_gemm.cu', SKINNY),
    ('columns beyond the weight are not zeros', 'mma_tiles.cuh', 'row >= 0 && column < cols',
     'row >= 0 && column <= cols', 'skinny_gemm.cu', SKINNY),
    ('up is not rounded', 'activation.cuh', 'up = BF16::Load(BF16::Store(up));', '',
     'skinny_gemm.cu', SKINNY),
    ('a tile has gate and up of another one', 'skinny_gemm.cu', 'place.row / (2 * kEight)',
     'place.row / kEight', None, SKINNY),
    ('a narrow tile has gate and up of two tokens', 'skinny_gemm.cu', 'sums[gate + 4]',
     'sums[(gate + 4) ^ 2]', None, SKINNY),
    ("a gated tile writes beyond its weight's rows", 'skinny_gemm.cu',
     'i >= columns_left) return;', 'i > columns_left) return;', None, SKINNY),
    ('gate and up that are combined lie as far apart as both', 'gemm.cc',
     'args.out_stride = ElementStride(op.gate.out);', '', None, GATE_UP),
    ('tiles are listed before the kernel ahead has ended', 'grouped_gemm.cu',
     'ptx::WaitForKernelAhead();\n    memory.tiles.Make(a.offsets, a.groups, kTokens);',
     'memory.tiles.Make(a.offsets, a.groups, kTokens);\n    ptx::WaitForKernelAhead();', None,
     GROUPED),
    ('a warp reads the list of tiles before it is made', 'grouped_tiles.cuh',
     'tiles, kWarp - 1);\n    }\n    __syncthreads();', 'tiles, kWarp - 1);\n    }',
     'grouped_gemm.cu', GROUPED),
    ('a stage of experts is requested while wgmma may read it', 'wgmma_tiles.cuh',
     'ptx::WaitForProducts<1>();', 'ptx::WaitForProducts<2>();', 'grouped_gemm.cu', GROUPED),
    ('a slot is free when the first warpgroup has released it', 'grouped_gemm.cu',
     'memory.ring.Init(S::kConsumers / kWarp);', 'memory.ring.Init(4);', None, GROUPED),
    ("a tile writes over the next group's rows", 'grouped_tiles.cuh',
     '.end = min(first + tokens, starts[group + 1])', '.end = first + tokens', 'grouped_gemm.cu',
     GROUPED),
    ('tiles of more than 32 groups are not added up', 'grouped_tiles.cuh',
     'before += __shfl_sync', 'before = __shfl_sync', 'grouped_gemm.cu', GROUPED),
    ('gate is activated before it is rounded', 'activation.cuh',
     'gate = BF16::Load(BF16::Store(gate));', '', 'grouped_gemm.cu', GROUPED),
    ("a group's gate and up are those of the next one", 'grouped_tiles.cuh',
     'tile.group * static_cast<int>(a.rows / kEight) +',
     '(tile.group + 1) * static_cast<int>(a.rows / kEight) +', 'grouped_gemm.cu', GROUPED),
    ('a stage of a wide tile is requested while wgmma may read it', 'wide_grouped_gemm.cu',
     'ptx::WaitForProducts<1>();', 'ptx::WaitForProducts<2>();', None, GROUPED),
    ('a warpgroup takes a wide tile before the loader has left it', 'wide_grouped_gemm.cu',
     'memory.ring.WaitUntilFilled(fill);\n      const GroupedTile tile', 'const GroupedTile tile',
     None, GROUPED),
    ('a warpgroup without tokens frees stages that it did not wait for', 'wide_grouped_gemm.cu',
     'memory.ring.WaitUntilFilled(fill + step);\n          __syncwarp();', '__syncwarp();', None,
     GROUPED),
    ('a lane frees a stage that other lanes still wait for', 'wide_grouped_gemm.cu',
     '__syncwarp();  // else', '// else', None, GROUPED),
    ('the loader leaves a tile where another one may still be read', 'wide_grouped_gemm.cu',
     'memory.ring.WaitUntilEmpty(fill);\n    memory.tiles[memory.ring.Slot(fill)] = tile;',
     'memory.tiles[memory.ring.Slot(fill)] = tile;\n    memory.ring.WaitUntilEmpty(fill);', None,
     GROUPED),
    ("a wide tile writes over the next group's rows", 'wide_grouped_gemm.cu',
     '(token_tile + 1) * blocks_ / token_tiles_ * kBlock, end_)',
     '(token_tile + 1) * blocks_ / token_tiles_ * kBlock, end_ + 9)', None, GROUPED),
    ('neighbours trade the columns that they keep', 'wide_grouped_gemm.cu',
     '(is_odd ? values[c] : values[2 + c]) = other;',
     '(is_odd ? values[2 + c] : values[c]) = other;', None, GROUPED),
    ('a tile of experts is overwritten while others read it', 'plain_tile.cuh',
     '    }\n    __syncthreads();\n  }', '    }\n  }', 'grouped_linear.cu', PLAIN_GROUPED),
    ("a router's columns are read before they are there", 'router_linear.cu',
     'ptx::WaitForCopies<kStages - 2>();', '', None, ROUTER),
    ("a router's columns are overwritten while they are read", 'router_linear.cu',
     '__syncthreads();  // all have', '// all have', None, ROUTER),
    ('of equal experts the higher is chosen', 'moe.cu',
     '~__reduce_max_sync(kAllLanes, equal ? ~index : 0)',
     '__reduce_max_sync(kAllLanes, equal ? index : 0)', None, ROUTES),
    ('the last bits of a score decide nothing', 'moe.cu', 'low == low_of_highest',
     'low <= low_of_highest', None, ROUTES),
    ("warps count their pairs before the others' are there", 'moe.cu',
     'counts[warp][1] = mine;\n  }\n  __syncthreads();', 'counts[warp][1] = mine;\n  }', None,
     ROUTES),
    ('pairs of a warp share a row', 'moe.cu', 'const int at = row + __popc(ours & lanes_before);',
     'const int at = row + __popc(ours & lanes_before) / 2 * 2;', None, ROUTES),
    ('a shared expert passes its gate by', 'moe.cu', 'sums[c] = fmaf(gate, shared[c], sums[c]);',
     'sums[c] = fmaf(gate * 0 + 1, shared[c], sums[c]);', None, COMBINE),
    ('a slot is filled before it is empty', 'ring.cuh',
     'ptx::WaitForPhase(&emptied[Slot(fill)], (fill / kSlots - 1) & 1);', '', 'skinny_gemm.cu',
     SKINNY),
    ('a slot of keys is filled before it is empty', 'ring.cuh',
     'ptx::WaitForPhase(&emptied[Slot(fill)], (fill / kSlots - 1) & 1);', '', 'mma_attention.cu',
     MMA_ATTENTION),
    ('highest scores are read before they are there', 'mma_attention_weights.cuh',
     'SyncComputers();\n#pragma unroll\n    for (int i = 0; i < 2; ++i) {\n      if (i >= halves)',
     '#pragma unroll\n    for (int i = 0; i < 2; ++i) {\n      if (i >= halves)',
     'mma_attention.cu', MMA_ATTENTION),
    ('weights are read before they are there', 'mma_attention_weights.cuh',
     '    SyncComputers();\n  }\n\n  // Adds up', '  }\n\n  // Adds up', 'mma_attention.cu',
     MMA_ATTENTION),
    ('a later NaN reaches a row', 'mma_attention_rows.cuh',
     '__any_sync(kAllLanes, HasNonFinite(values))', 'false', 'mma_attention.cu', MMA_ATTENTION),
    ('keys of the step are requested before they are stored', 'mma_attention_tiles.cuh',
     'tile + row + box_rows_ <= keys.num_old', 'true', 'mma_attention.cu', MMA_ATTENTION),
    ('lanes copy keys of the step before they are stored', 'lane_attention_tiles.cuh',
     'rows.LastKey()) >= rows.first_position', 'rows.LastKey()) < 0', 'mma_attention.cu',
     MMA_ATTENTION),
    ('chunks of keys lie where TMA does not put them', 'lane_attention_tiles.cuh',
     '(chunk_ ^ row % 8)', 'chunk_', 'mma_attention.cu', MMA_ATTENTION),
    ('keys of the step are read from an FP8 cache before they are stored',
     'fp8_attention_tiles.cuh', 'rows.LastKey()) >= rows.first_position',
     'rows.LastKey()) > rows.first_position', 'mma_attention.cu', FP8_ATTENTION),
    ('one of the warps that store a tile of an FP8 cache is not waited for', 'mma_attention.cu',
     'kFp8 ? kFp8LoaderWarps : S::', 'kFp8 ? kFp8LoaderWarps - 1 : S::', None, FP8_ATTENTION),
    ('wgmma reads stores to a tile of an FP8 cache without a fence', 'fp8_attention_tiles.cuh',
     'if constexpr (kForProducts) ptx::FenceAsyncProxy();', '', 'wide_attention.cu', FP8_ATTENTION),
    ('NaN of E4M3 becomes a number', 'fp8_attention_tiles.cuh', 'if (nans != 0) {',
     'if (nans == 1) {', 'mma_attention.cu', MMA_ATTENTION),
    ('queries are read before they are stored', 'mma_attention.cu',
     '    ptx::WaitForKernelAhead();\n    LoadQueries', '    LoadQueries', None, MMA_ATTENTION),
    ('a box of keys begins a block too late', 'mma_attention_tiles.cuh',
     '? table[index] : 0', '? table[index + 1] : 0',
     'mma_attention.cu', MMA_ATTENTION),
    ('weights of latents are read before they are there', 'mma_attention_weights.cuh',
     '    SyncComputers();\n  }\n\n  // Adds up', '  }\n\n  // Adds up', 'latent_attention.cu', LATENT),
    ('queries for latents are read before they are in shared memory', 'latent_attention.cu',
     'LoadQueries(rows);\n    SyncComputers();', 'LoadQueries(rows);', None, LATENT),
    ('latents of the step are requested before they are stored', 'latent_attention_tiles.cuh',
     'rows.LastKey()) >= rows.first_position', 'rows.LastKey()) > rows.first_position',
     'latent_attention.cu', LATENT),
    ('latents are scored before they are copied', 'latent_attention.cu',
     'memory_.ring.WaitUntilFilled(fill_ + static_cast<unsigned>(warp_));', '', None, LATENT),
    ('latents are released before their values are added', 'latent_attention.cu',
     'LoadStep(k, latents, weights, values);\n        Multiply(weights, values, sums);\n'
     '        Release(k);',
     'Release(k);\n        LoadStep(k, latents, weights, values);\n'
     '        Multiply(weights, values, sums);', None, LATENT),
    ('a later latent that is NaN reaches a row', 'latent_attention.cu',
     '__any_sync(kAllLanes, non_finite)', 'false', None, LATENT),
    ('a wide tile of latents is used before it is there', 'wide_latent_attention.cu',
     'memory_.ring.WaitUntilFilled(fill_);', '', None, WIDE_LATENT),
    ('latents are released while wgmma may read them', 'wide_latent_attention.cu',
     'AddValues(latents, sums);\n        memory_.ring.ReleaseAfterProducts(fill_);',
     'memory_.ring.ReleaseAfterProducts(fill_);\n        AddValues(latents, sums);', None,
     WIDE_LATENT),
    ('queries of a wide tile of latents are read before they are stored',
     'wide_latent_attention.cu', 'ptx::WaitForKernelAhead();', '', None, WIDE_LATENT),
    ('queries of a wide tile of latents are not waited for', 'wide_latent_attention.cu',
     'ptx::WaitForCopies<0>();', '', None, WIDE_LATENT),
    ('queries of other warps are multiplied before they are there', 'wide_latent_attention.cu',
     'LoadQueries(rows);\n    SyncComputers();', 'LoadQueries(rows);', None, WIDE_LATENT),
    ('highest scores of the other warpgroup are read before they are there',
     'wide_latent_attention.cu', 'SyncComputers();\n    float factors[2];', 'float factors[2];',
     None, WIDE_LATENT),
    ('weights of the other warpgroup are multiplied before they are there',
     'wide_latent_attention.cu', '    SyncComputers();\n  }\n\n  __device__ void AddValues',
     '  }\n\n  __device__ void AddValues', None, WIDE_LATENT),
    ('weights are stored for wgmma without a fence', 'wide_latent_attention.cu',
     'ptx::FenceAsyncProxy();  // orders the weights before the products that read them', '',
     None, WIDE_LATENT),
    ('sums of weights of the other warpgroup are read before they are there',
     'wide_latent_attention.cu', '    SyncComputers();\n#pragma unroll\n    for (int i = 0; i < 2; '
     '++i) {\n      float sum =', '#pragma unroll\n    for (int i = 0; i < 2; ++i) {\n'
     '      float sum =', None, WIDE_LATENT),
    ('totals lack a row\'s last split', 'wide_latent_attention.cu',
     'is_seen[i] = split <= last', 'is_seen[i] = split < last', None, WIDE_LATENT),
    ('a latent that is NaN reaches rows of a wide tile that do not see it',
     'wide_latent_attention.cu', 'all_seen || AreFinite(latents)',
     'all_seen || AreFinite(latents) || true', None, WIDE_LATENT),
    ('the inputs before a step are overwritten while they are read', 'gated_delta.cu',
     '  __syncthreads();\n  if (!has_channel', '  if (!has_channel', None, GATED_DELTA),
    ('a state begins with what its slot held', 'gated_delta.cu', 'return length == count;',
     'return false;', None, GATED_DELTA),
    ('a column of a state is summed over half of its lanes', 'gated_delta.cu',
     'distance < kWarp; distance *= 2', 'distance < kWarp / 2; distance *= 2', None, GATED_DELTA),
    ('the weight of a head is read before it is there', 'head_linear.cu',
     'ptx::WaitForCopies<0>();', '', None, (KERNELS, 'HeadLinear.*')),
    ('values are multiplied before they are there', 'wide_attention.cu',
     'memory_.ring.WaitUntilFilled(fill_ + 1);\n        ptx::WaitForProducts<0>();',
     'ptx::WaitForProducts<0>();', None, WIDE_ATTENTION),
    ('scores become weights before they are there', 'wide_attention.cu',
     'ptx::WaitForProducts<1>();', 'ptx::WaitForProducts<2>();', None, WIDE_ATTENTION),
    ('values are released while wgmma may read them', 'wide_attention.cu',
     'ptx::WaitForProducts<1>();',
     'memory_.ring.ReleaseAfterProducts(fill_ - 1);\n        ptx::WaitForProducts<1>();', None,
     WIDE_ATTENTION),
    ('a row of a wide tile does not see its own key', 'wide_attention.cu',
     'low[i] <= key && key <= high[i]', 'low[i] <= key && key < high[i]', None, WIDE_ATTENTION),
    ('splits are merged in the wrong order', 'mma_attention_rows.cuh',
     'factors[i] = MergeWeights(highest[i], sum[i], sums.highest[i], sums.sum[i]);',
     'factors[i] = MergeWeights(highest[i], sum[i], sums.highest[i], sums.sum[i]);\n'
     '      factors[i] = {factors[i].later, factors[i].sums};', 'wide_attention.cu',
     WIDE_ATTENTION),
    ('a warpgroup does not wait for a tile of the other one', 'wide_attention.cu',
     'memory_.ring.WaitUntilFilled(fill_);\n      __syncwarp();\n', '', None, WIDE_ATTENTION),
    ('a lane is left behind by those that skip tiles', 'wide_attention.cu',
     'memory_.ring.WaitUntilFilled(fill_);\n      __syncwarp();\n',
     'memory_.ring.WaitUntilFilled(fill_);\n', None, EXPANDED),
    ('a NaN reaches rows of a wide tile that do not see it', 'wide_attention.cu',
     'const bool are_finite = AreFinite(stage);',
     'const bool are_finite = AreFinite(stage) || true;', None, WIDE_ATTENTION),
    ('a chunk of keys is not merged with the earlier ones', 'wide_attention.cu',
     'part.TakeInState(rows, sums);', '(void)part;', None, EXPANDED),
    ('a lane stores a row\'s state that another one has yet to read', 'mma_attention_rows.cuh',
     '__syncwarp();  // all lanes of a row', '// all lanes of a row', 'wide_attention.cu', EXPANDED),
    ('tokens of other shards read beyond the table', 'elementwise.cu',
     'if (is_here) LoadFour', 'if (is_here || true) LoadFour', None, ELEMENTS),
    ('parts are added from the last rank to the first', 'collectives.cu',
     'a.parts + rank * a.count + i', 'a.parts + (a.num_parts - rank) * a.count + i', None, RANKS),
    ('columns are taken from the next row', 'collectives.cu',
     'a.x)[row * a.x_stride + col]', 'a.x)[(row + 1) * a.x_stride + col]', None, RANKS),
    ("columns beyond a rank's own are written", 'collectives.cu',
     'if (col >= a.columns[rank].end) return;', '', None, RANKS),
    ('every piece of a sum is its first', 'ranks.cc',
     '.sum = static_cast<float*>(op.x.data) + begin', '.sum = static_cast<float*>(op.x.data)',
     None, RANKS),
    ('a device that waits for another rank in vain ends no group', 'backend.cc',
     'ranks_->End(status);', 'guard_.Lose(status);', None, RANKS),
    ('a stage takes fewer bytes than were sent', 'ranks.cc', 'SizeOf(op.out);',
     'SizeOf(op.out) / 2;', None, RANKS),
    ('decompressed keys arrive in a slot that is still read', 'expanded_attention_tiles.cuh',
     'memory_.ring.WaitUntilEmpty(fill_);', '', 'wide_attention.cu', EXPANDED),
]


def check_places():
    """Fails if the sources have changed so that a fault has no place, even one not picked."""
    lost = [f'{source} has {count} times, not once: {old}' for _, source, old, *_ in FAULTS
            if (count := (ROOT / CUDA / source).read_text().count(old)) != 1]
    if lost:
        raise SystemExit('\n'.join(lost))


def run(command, cwd):
    done = subprocess.run(command, cwd=cwd, shell=True, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f'{command}\n{done.stdout}{done.stderr}')


class Builder:
    """Compiles a changed source and links the target that contains it, in another folder."""

    def __init__(self, build):
        self.build = build
        self.commands = {}
        for entry in json.loads((build / 'compile_commands.json').read_text()):
            holders = ('tokamak_cuda_emulated', 'conformance_emulated', 'cuda_kernels_test')
            if any(holder in entry['command'] for holder in holders):
                self.commands.setdefault(entry['file'], []).append(entry['command'])

    def make(self, folder, source, old, new, unit, target):
        """Builds `target` with `old` replaced by `new` in `source` and returns its path."""
        text = (ROOT / CUDA / source).read_text()
        changed = folder / 'src' / 'ops' / 'cuda' / source
        changed.parent.mkdir(parents=True)
        changed.write_text(text.replace(old, new))
        unit = unit or source
        original = str(ROOT / CUDA / unit)
        link = subprocess.run(['ninja', '-t', 'commands', '-s', target], cwd=self.build, check=True,
                              capture_output=True, text=True).stdout.strip().splitlines()[-1]
        # Several targets may compile the source, each into an object of its own.
        words, output = next(
            (words, output) for f, commands in self.commands.items()
            if os.path.normpath(f) == original for words in map(shlex.split, commands)
            if (output := words[words.index('-o') + 1]) in link.split())
        result = str(folder / 'changed.o')
        compiled = str(changed) if unit == source else original
        words = [compiled if os.path.normpath(w) == original else result if w == output else w
                 for w in words]
        first_include = next(i for i, w in enumerate(words) if w.startswith('-I'))
        words.insert(first_include, f'-I{folder}/src')
        run(shlex.join(words), self.build)
        made = folder / pathlib.Path(target).name
        run(link.replace(output, result).replace(f'-o {target}', f'-o {made}'), self.build)
        return made


def found_by(build, made, test):
    """Says with which seed a test fails first; None if it passes with all."""
    program, cases = test
    for seed in SEEDS:
        env = dict(os.environ, TOKAMAK_EMULATION_SEED=str(seed))
        command = [str(made if program in (CONFORMANCE, KERNELS) else build / program)]
        if cases:
            env['TOKAMAK_CUDA_LIBRARY'] = str(made)
            command += [f'--gtest_filter={cases}', '--gtest_fail_fast']
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True,
                                  errors='replace', timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return f'seed {seed}, which hangs'
        if 'no CUDA backend here' in done.stdout + done.stderr:
            raise SystemExit(done.stdout + done.stderr)
        if done.returncode != 0:
            return f'seed {seed}'
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('build', type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument('--pick', type=int)
    parser.add_argument('--only', default='')
    args = parser.parse_args()
    check_places()
    faults = [fault for fault in FAULTS if args.only in fault[0]]
    if args.pick:
        commit = subprocess.run(['git', 'rev-parse', 'HEAD'], cwd=ROOT, capture_output=True,
                                text=True).stdout.strip()
        faults = random.Random(commit).sample(faults, args.pick)
    builder = Builder(args.build)
    missed = 0
    for name, source, old, new, unit, test in faults:
        start = time.monotonic()
        target = test[0] if test[0] in (CONFORMANCE, KERNELS) else LIBRARY
        with tempfile.TemporaryDirectory() as folder:
            made = builder.make(pathlib.Path(folder), source, old, new, unit, target)
            found = found_by(args.build, made, test)
        missed += found is None
        print(f'{f"found by {found}" if found else "NOT FOUND"}: {name} ({source}), '
              f'{time.monotonic() - start:.0f} s', flush=True)
    print(f'{len(faults) - missed} of {len(faults)} faults were found')
    return 1 if missed else 0


if __name__ == '__main__':
    sys.exit(main())
