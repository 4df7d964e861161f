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
  const std::int64_t position = args.keys - args.time + query;
  if (key > position) return false;
  if (args.window > 0 && key <= position - args.window) return false;
  const std::int64_t row = batch * args.keys;
  if (args.documents != nullptr && args.documents[row + key] != args.documents[row + position]) return false;
  return args.key_mask == nullptr || args.key_mask[row + key] != 0;
}

/// Row `t` of a query head (of q, out and their gradients), and of the key head that it reads.
template <class S, class T>
T* attention_query_row(const AttentionArgs<S>& args, T* x, std::int64_t batch, std::int64_t head,
                       std::int64_t t, std::int64_t stride) {
  return x + (batch * args.time + t) * stride + head * args.d_head;
}
template <class S, class T>
T* attention_key_row(const AttentionArgs<S>& args, T* x, std::int64_t batch, std::int64_t head,
                     std::int64_t key, std::int64_t stride) {
  return x + (batch * args.keys + key) * stride + head / (args.heads / args.kv_heads) * args.d_head;
}

/// Logits of one query against all keys; -infinity for keys that it does not see.
template <class S>
std::vector<Arith<S>> attention_logits(const AttentionArgs<S>& args, std::int64_t batch, std::int64_t head,
                                       std::int64_t query) {
  using A = Arith<S>;
  std::vector<A> logits(args.keys, -std::numeric_limits<A>::infinity());
  const S* q = attention_query_row(args, args.q, batch, head, query, args.q_row_stride);
  for (std::int64_t key = 0; key < args.keys; ++key) {
    if (!attention_sees(args, batch, query, key)) continue;
    const S* k = attention_key_row(args, args.k, batch, head, key, args.kv_row_stride);
    A dot = 0;
    for (std::int64_t j = 0; j < args.d_head; ++j) dot += get(q[j]) * get(k[j]);
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
        for (std::int64_t key = 0; sees && key < args.keys; ++key) {
          if (!attention_sees(args, batch, t, key)) continue;
          const S v = attention_key_row(args, args.v, batch, head, key, args.kv_row_stride)[j];
          out += std::exp(logits[key] - highest) / sum * get(v);
        }
        attention_query_row(args, args.out, batch, head, t, args.out_row_stride)[j] = put<S>(out);
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
  const auto time = static_cast<std::size_t>(args.time), keys = static_cast<std::size_t>(args.keys),
             d = static_cast<std::size_t>(args.d_head);
  const std::int64_t group = args.heads / args.kv_heads;
  for (std::int64_t item = item_begin; item < item_end; ++item) {
    const std::int64_t batch = item / args.kv_heads, first_head = item % args.kv_heads * group;
    std::vector<A> dk(keys * d), dv(keys * d), p(keys), dp(keys);
    for (std::int64_t head = first_head; head < first_head + group; ++head) {
      std::vector<A> dq(time * d);
      for (std::size_t t = 0; t < time; ++t) {
        const std::vector<A> logits = attention_logits(args, batch, head, static_cast<std::int64_t>(t));
        const A lse = args.lse[(batch * args.heads + head) * args.time + static_cast<std::int64_t>(t)];
        const S* dout = attention_query_row(args, args.dout, batch, head, t, args.out_row_stride);
        A expected = 0;
        for (std::size_t key = 0; key < keys; ++key) {
          const bool sees =
              attention_sees(args, batch, static_cast<std::int64_t>(t), static_cast<std::int64_t>(key));
          const S* v = attention_key_row(args, args.v, batch, head, key, args.kv_row_stride);
          p[key] = sees ? std::exp(logits[key] - lse) : A{0};
          dp[key] = 0;
          for (std::size_t j = 0; sees && j < d; ++j) dp[key] += get(dout[j]) * get(v[j]);
          expected += p[key] * dp[key];
        }
        const S* q = attention_query_row(args, args.q, batch, head, t, args.q_row_stride);
        for (std::size_t key = 0; key < keys; ++key) {
          if (p[key] == 0) continue;
          const A ds = p[key] * (dp[key] - expected) * args.scale;
          const S* k = attention_key_row(args, args.k, batch, head, key, args.kv_row_stride);
          for (std::size_t j = 0; j < d; ++j) {
            dq[t * d + j] += ds * get(k[j]);
            dk[key * d + j] += ds * get(q[j]);
            dv[key * d + j] += p[key] * get(dout[j]);
          }
        }
      }
      for (std::size_t t = 0; t < time; ++t)
        for (std::size_t j = 0; j < d; ++j)
          attention_query_row(args, args.dq, batch, head, t, args.dq_row_stride)[j] = put<S>(dq[t * d + j]);
    }
    for (std::size_t key = 0; key < keys; ++key)
      for (std::size_t j = 0; j < d; ++j) {
        attention_key_row(args, args.dk, batch, first_head, key, args.dkv_row_stride)[j] =
            put<S>(dk[key * d + j]);
        attention_key_row(args, args.dv, batch, first_head, key, args.dkv_row_stride)[j] =
            put<S>(dv[key * d + j]);
      }
  }
}

}  // namespace tenon::kernels::reference
