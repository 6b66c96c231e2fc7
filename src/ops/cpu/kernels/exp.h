// exp for vectors: within 2 ulp of the true value over the whole range, denormal results and
// infinity included; the same bits on every ISA, because multiplies and adds are kept apart.
#pragma once

namespace tokamak::cpu {

// exp(x) = 2^n · exp(r), n = round(x / ln 2), |r| <= ln 2 / 2, with exp(r) = 1 + r + r² P(r); P is
// the degree-4 minimax polynomial of relative error 3.1e-9 (0.05 ulp). n · ln 2 is subtracted in
// two parts, the first of few enough bits for an exact product. NaN gives NaN.
template <class V>
[[gnu::always_inline]] inline typename V::F Exp(typename V::F x) {
  using F = typename V::F;
  // The limits are beyond where results are infinity or zero. The second operand wins if it is NaN.
  x = V::Max(V::Broadcast(-110.0f), V::Min(V::Broadcast(90.0f), x));
  const auto n = V::Round(V::Mul(x, V::Broadcast(1.44269504f)));
  const F whole = V::ToFloat(n);
  F r = V::Sub(x, V::Mul(whole, V::Broadcast(0.693359375f)));
  r = V::Sub(r, V::Mul(whole, V::Broadcast(-2.12194440e-4f)));
  F p = V::Broadcast(0.00138145401768f);
  p = V::Add(V::Mul(p, r), V::Broadcast(0.00836874510894f));
  p = V::Add(V::Mul(p, r), V::Broadcast(0.0416683907835f));
  p = V::Add(V::Mul(p, r), V::Broadcast(0.16666520399f));
  p = V::Add(V::Mul(p, r), V::Broadcast(0.499999934321f));
  p = V::Add(V::Add(V::Mul(V::Mul(r, r), p), r), V::Broadcast(1.0f));
  // 2^n in two factors, each a normal number.
  const auto half = V::template ShiftRightSigned<1>(n);
  const auto rest = V::SubInt(n, half);
  return V::Mul(V::Mul(p, V::PowerOfTwo(half)), V::PowerOfTwo(rest));
}

}  // namespace tokamak::cpu
