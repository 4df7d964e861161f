// Reference attention: one query at a time, each row of probabilities written out, formulas as in the
// textbooks.
#pragma once

#include <cmath>
#include <limits>
#include <tenon/kernels/attention.hpp>
#include <tenon/kernels/reference/scalar.hpp>
#include <vector>

namespace tenon::kernels::reference {

template <class S>
std::int64_t attention_workspace(const AttentionArgs<S>&) {
  return 0;
}

template <class S>
bool attention_sees(const AttentionArgs<S>& args, std::int64_t batch, std::int64_t query, std::int64_t key) {
  if (key > query) return false;
  if (args.window > 0 && key <= query - args.window) return false;
  return args.key_mask == nullptr || args.key_mask[batch * args.time + key] != 0;
}

/// Logits of one query against all keys; -infinity for keys that it does not see.
template <class S>
std::vector<Arith<S>> attention_logits(const AttentionArgs<S>& args, std::int64_t batch, std::int64_t head,
                                       std::int64_t query) {
  using A = Arith<S>;
  std::vector<A> logits(args.time, -std::numeric_limits<A>::infinity());
  const auto at = [&](const S* x, std::int64_t t, std::int64_t j) {
    return get(x[(batch * args.time + t) * args.qkv_row_stride + head * args.d_head + j]);
  };
  for (std::int64_t key = 0; key < args.time; ++key) {
    if (!attention_sees(args, batch, query, key)) continue;
    A dot = 0;
    for (std::int64_t j = 0; j < args.d_head; ++j) dot += at(args.q, query, j) * at(args.k, key, j);
    logits[key] = dot * args.scale;
  }
  return logits;
}

template <class S>
void attention_forward(const AttentionArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                       Arith<S>*) {
  using A = Arith<S>;
  const std::int64_t blocks = (args.time + kAttentionQueryBlock - 1) / kAttentionQueryBlock;
  for (std::int64_t item = item_begin; item < item_end; ++item) {
    const std::int64_t batch = item / blocks / args.heads, head = item / blocks % args.heads;
    const std::int64_t first = item % blocks * kAttentionQueryBlock;
    for (std::int64_t t = first; t < args.time && t < first + kAttentionQueryBlock; ++t) {
      const std::vector<A> logits = attention_logits(args, batch, head, t);
      A highest = -std::numeric_limits<A>::infinity(), sum = 0;
      for (const A logit : logits) highest = logit > highest ? logit : highest;
      const bool sees = highest > -std::numeric_limits<A>::infinity();
      if (sees)
        for (const A logit : logits) sum += std::exp(logit - highest);
      for (std::int64_t j = 0; j < args.d_head; ++j) {
        A out = 0;
        for (std::int64_t key = 0; sees && key < args.time; ++key) {
          if (!attention_sees(args, batch, t, key)) continue;
          const S v = args.v[(batch * args.time + key) * args.qkv_row_stride + head * args.d_head + j];
          out += std::exp(logits[key] - highest) / sum * get(v);
        }
        args.out[(batch * args.time + t) * args.out_row_stride + head * args.d_head + j] = put<S>(out);
      }
      if (args.lse != nullptr)
        args.lse[(batch * args.heads + head) * args.time + t] = sees ? highest + std::log(sum) : highest;
    }
  }
}

/// P = softmax(logits); dV = P' dO; dP = dO V'; dS = P (dP - rowsum(P dP)) scale; dQ = dS K; dK = dS' Q.
template <class S>
void attention_backward(const AttentionArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                        Arith<S>*) {
  using A = Arith<S>;
  const auto time = static_cast<std::size_t>(args.time), d = static_cast<std::size_t>(args.d_head);
  for (std::int64_t item = item_begin; item < item_end; ++item) {
    const std::int64_t batch = item / args.heads, head = item % args.heads;
    const auto row = [&](auto* x, std::size_t t, std::int64_t stride) {
      return x + (batch * args.time + static_cast<std::int64_t>(t)) * stride + head * args.d_head;
    };
    std::vector<A> dq(time * d), dk(time * d), dv(time * d), p(time), dp(time);
    for (std::size_t t = 0; t < time; ++t) {
      const std::vector<A> logits = attention_logits(args, batch, head, static_cast<std::int64_t>(t));
      const A lse = args.lse[item * args.time + static_cast<std::int64_t>(t)];
      const S* dout = row(args.dout, t, args.out_row_stride);
      A expected = 0;
      for (std::size_t key = 0; key < time; ++key) {
        const bool sees =
            attention_sees(args, batch, static_cast<std::int64_t>(t), static_cast<std::int64_t>(key));
        const S* v = row(args.v, key, args.qkv_row_stride);
        p[key] = sees ? std::exp(logits[key] - lse) : A{0};
        dp[key] = 0;
        for (std::size_t j = 0; sees && j < d; ++j) dp[key] += get(dout[j]) * get(v[j]);
        expected += p[key] * dp[key];
      }
      for (std::size_t key = 0; key < time; ++key) {
        if (p[key] == 0) continue;
        const A ds = p[key] * (dp[key] - expected) * args.scale;
        const S* q = row(args.q, t, args.qkv_row_stride);
        const S* k = row(args.k, key, args.qkv_row_stride);
        for (std::size_t j = 0; j < d; ++j) {
          dq[t * d + j] += ds * get(k[j]);
          dk[key * d + j] += ds * get(q[j]);
          dv[key * d + j] += p[key] * get(dout[j]);
        }
      }
    }
    for (std::size_t t = 0; t < time; ++t)
      for (std::size_t j = 0; j < d; ++j) {
        row(args.dq, t, args.dqkv_row_stride)[j] = put<S>(dq[t * d + j]);
        row(args.dk, t, args.dqkv_row_stride)[j] = put<S>(dk[t * d + j]);
        row(args.dv, t, args.dqkv_row_stride)[j] = put<S>(dv[t * d + j]);
      }
  }
}

}  // namespace tenon::kernels::reference
