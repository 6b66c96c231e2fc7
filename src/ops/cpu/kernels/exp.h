// exp, 2^x and tanh for vectors. Exp and Tanh have the same bits on every ISA, because they do not
// fuse multiplies and adds; Exp2 has the same bits on every ISA with FMA.
#pragma once

namespace tokamak::cpu {

// Within 2 ulp over the whole range, including denormal results and infinity. NaN gives NaN.
// exp(x) = 2^n · exp(r), n = round(x / ln 2), |r| <= ln 2 / 2, exp(r) = 1 + r + r² P(r), P the
// degree-4 minimax polynomial of relative error 3.1e-9 (0.05 ulp). n · ln 2 is subtracted in two
// parts, the first with so few bits that its product is exact.
template <class V>
[[gnu::always_inline]] inline typename V::F Exp(typename V::F x) {
  using F = typename V::F;
  // Beyond these limits results are infinity or zero. For NaN, Max and Min return the second
  // operand.
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

// 2^x for x <= 0, within 1 ulp; below 2^-126.5, and for -infinity, exactly zero. 2^0 is exactly 1.
// NaN gives NaN. 2^x = 2^n · 2^r, n = round(x), 2^r = 1 + r P(r), P the degree-5 minimax polynomial
// of relative error 2e-9 (0.03 ulp).
template <class V>
[[gnu::always_inline]] inline typename V::F Exp2(typename V::F x) {
  using F = typename V::F;
  x = V::Max(V::Broadcast(-127.0f), x);  // the second operand for NaN
  const auto n = V::Round(x);
  const F r = V::Sub(x, V::ToFloat(n));
  F p = V::Broadcast(1.5353362e-4f);
  p = V::Fma(p, r, V::Broadcast(1.3398875e-3f));
  p = V::Fma(p, r, V::Broadcast(9.618437e-3f));
  p = V::Fma(p, r, V::Broadcast(5.5503324e-2f));
  p = V::Fma(p, r, V::Broadcast(0.24022648f));
  p = V::Fma(p, r, V::Broadcast(0.6931472f));
  p = V::Fma(p, r, V::Broadcast(1.0f));
  return V::Mul(p, V::PowerOfTwo(n));
}

// tanh(x) = 1 - 2 / (exp(2x) + 1), within 2e-7 absolutely.
template <class V>
[[gnu::always_inline]] inline typename V::F Tanh(typename V::F x) {
  const typename V::F one = V::Broadcast(1.0f);
  const typename V::F divisor = V::Add(Exp<V>(V::Add(x, x)), one);
  return V::Sub(one, V::Div(V::Broadcast(2.0f), divisor));
}

}  // namespace tokamak::cpu
