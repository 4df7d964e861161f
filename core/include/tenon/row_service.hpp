// Lookups in tables that are sharded over the replicas: a replica requests rows from their owners on its own
// ([parallel] rows = "request") instead of together with all replicas. The core carries requests and answers;
// their content is private to a node and the same node on other replicas.
#pragma once

#include <tenon/parameter.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// The owner's side of a node's lookups.
class RowLookupHandler {
 public:
  virtual ~RowLookupHandler();
  /// Writes the answer to `request` from this rank's rows into `answer`, whose size the requester chose.
  /// `tables` are in the order of RowService::offer; each read returns whole rows, but not all of one moment.
  /// Called from several threads at once and while the node runs: it must use nothing that forward changes,
  /// and must not wait. Throws Error(kRun) when request and answer do not fit together. Data is 4-byte
  /// aligned in requests and 8-byte aligned in answers if the requester's was.
  virtual void answer(std::span<const std::byte> request, std::span<const RowTable* const> tables,
                      std::span<std::byte> answer) const = 0;
};

/// A request to one replica; none where `request` is empty.
struct RowAsk {
  std::span<const std::byte> request;
  std::span<std::byte> answer;
};

/// Offered by a layer's host, InferContext::host().query(kId), where training reads rows on request; null
/// where replicas read them in step, over InferContext::replicas(). One per worker. Forwards that are
/// not training (evaluations) are in step either way: every replica runs as many.
class RowService {
 public:
  static constexpr const char* kId = "tenon.rows/1";
  virtual ~RowService();
  /// In infer: the node answers for its tables (names of parameters that are sharded over the replicas).
  /// Returns its number for ask(). `handler` lives as long as the node.
  virtual int offer(std::string_view node, std::span<const std::string> tables,
                    const RowLookupHandler& handler) = 0;
  /// In a training forward: sends asks[r] to replica r, this one included, which answers without a message.
  /// Returns when all have answered, with rows as they were when each request came. Bytes count as Purpose
  /// kModel. Throws DeadlineError that names the late rank.
  virtual void ask(int node, std::span<const RowAsk> asks) = 0;
};

TENON_ABI_END
