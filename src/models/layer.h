// How a layer's attention, feed-forward and norms change the residual stream h. The parts are in
// the order in which they run.
#pragma once

#include <memory>
#include <variant>

#include "nn/norm.h"
#include "nn/pass.h"
#include "nn/sublayer.h"

namespace tokamak {

using SublayerPtr = std::unique_ptr<const nn::Sublayer>;

// A view of x, which is contiguous: [T, cols], whose row t is the rows t, t + 1, ... of x, side by
// side. The last rows end behind x; nothing may read them.
inline Tensor SideBySide(Tensor x, int64_t cols) {
  x.shape = {x.rows(), cols};
  return x;
}

// h in a pass: f32 [T, hidden_size].
class Residual {
 public:
  Residual(nn::Pass& pass, int64_t hidden_size)
      : Residual(pass, pass.arena.Allocate(DType::kF32, {pass.num_tokens(), hidden_size})) {}
  // Changes `h` in place.
  Residual(nn::Pass& pass, Tensor h)
      : pass_(pass), h_(h), memory_(pass.arena.Allocate(DType::kF32, h_.shape)) {}

  // The memory of h, for its first values.
  Tensor first() const { return h_; }
  // Brings all of h into that memory.
  void Finish();

  // h += sublayer(norm(h))
  void Add(const nn::Norm& norm, const SublayerPtr& sublayer) { Add(&norm, *sublayer, nullptr); }
  // h += norm(sublayer(h))
  void Add(const SublayerPtr& sublayer, const nn::Norm& norm) { Add(nullptr, *sublayer, &norm); }
  // h += after(sublayer(before(h)))
  void Add(const nn::Norm& before, const SublayerPtr& sublayer, const nn::Norm& after) {
    Add(&before, *sublayer, &after);
  }
  // out = h in these rows: f32 [R, hidden_size], which may be columns of a wider tensor. Or, if
  // `out` is n times as wide, h in n rows from each of these on, side by side.
  void Gather(Tensor rows, Tensor out) const;
  // h[to[k]] += source[from[k]], for K distinct `to`. `indices` are 0, 1, ...; at least K.
  // Allocates the same whatever K is, so that planning, which shows no image, counts it.
  void AddRows(Tensor source, Tensor from, Tensor to, Tensor indices) const;
  // out = norm(h). Or, if `out` is n times as wide, the norm of h in n rows side by side, for each
  // n rows. Then h is in first(), and this cannot be used any more.
  void Normalize(const nn::Norm& norm, Tensor out) const;
  // out = norm(h) in these rows. Allocates room for them.
  void Normalize(const nn::Norm& norm, Tensor rows, Tensor out) const;

 private:
  void Add(const nn::Norm* before, const nn::Sublayer& sublayer, const nn::Norm* after);
  Tensor Rows(const Tensor& source, Tensor rows) const;

  nn::Pass& pass_;
  Tensor h_;       // without delta_
  Tensor memory_;  // of delta_
  // The last sublayer's output, in an inner type (ops/ops.h), which the next norm adds to h_. None
  // at first.
  Tensor delta_;
};

// Llama and most others. arXiv:2002.04745.
struct PreNorm {
  nn::Norm attention_norm;
  SublayerPtr attention;
  nn::Norm feed_forward_norm;
  SublayerPtr feed_forward;

  void Forward(Residual& h) const {
    h.Add(attention_norm, attention);        // h += attention(norm(h))
    h.Add(feed_forward_norm, feed_forward);  // h += feed_forward(norm(h))
  }
};

// OLMo 2. arXiv:2501.00656, section 3.
struct PostNorm {
  SublayerPtr attention;
  nn::Norm attention_norm;
  SublayerPtr feed_forward;
  nn::Norm feed_forward_norm;

  void Forward(Residual& h) const {
    h.Add(attention, attention_norm);        // h += norm(attention(h))
    h.Add(feed_forward, feed_forward_norm);  // h += norm(feed_forward(h))
  }
};

// Gemma 2. arXiv:2408.00118, section 2.
struct SandwichNorm {
  nn::Norm before_attention;
  SublayerPtr attention;
  nn::Norm after_attention;
  nn::Norm before_feed_forward;
  SublayerPtr feed_forward;
  nn::Norm after_feed_forward;

  void Forward(Residual& h) const {
    h.Add(before_attention, attention, after_attention);           // h += norm(attention(norm(h)))
    h.Add(before_feed_forward, feed_forward, after_feed_forward);  // the same
  }
};

using Layer = std::variant<PreNorm, PostNorm, SandwichNorm>;

}  // namespace tokamak
