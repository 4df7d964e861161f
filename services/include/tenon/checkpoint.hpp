// The checkpoint store: generations `step-<n>/` that are complete or absent, whatever fails while they are
// written. A generation holds one safetensors file per rank that had something to write, and MANIFEST.json,
// which knows the global shape of every tensor, where its parts are, a CRC-32C per MiB of every file, and its
// own. The store decides nothing: the recovery policy decides what to save and when.
#pragma once

#include <tenon/files.hpp>
#include <tenon/recovery.hpp>
#include <tenon/tensor.hpp>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// Part of a logical tensor that one rank writes. The whole tensor is the union of the parts of all ranks; a
/// replica that holds the same part as another one leaves it to that one. Empty parts are skipped.
struct SaveItem {
  std::string name;    ///< of the logical tensor, the same on all ranks; '#' is reserved
  TensorView data;     ///< extents of the part; host memory, or any space that the saver's copier can read
  Shape global_shape;  ///< of the logical tensor
  Shape offset;        ///< first global index of the part per dimension
  /// Not empty: data row i is global row rows[i] (ascending, unique); offset[0] is then 0.
  std::span<const std::int64_t> rows = {};
  /// "plain", or a recovery policy's own: then `payload` is stored in place of data.data, and reading needs
  /// its decoder.
  std::string encoding = "plain";
  std::span<const std::byte> payload = {};
};

/// Free-form state beside the tensors: reader position, random numbers, policy state. Any bytes. A name that
/// several ranks write must carry the same value; what differs per rank has the rank in its name.
struct MetaBlock {
  std::string name;
  std::string value;
};

struct SaveRequest {
  std::int64_t step = 0;
  std::int64_t timeline = 0;  ///< grows by one at every roll-back; a later timeline wins over a later step
  std::int64_t base =
      -1;  ///< step of the generation that this one is an increment of; -1 = complete in itself
  bool consistent = true;           ///< all tensors are of the same moment (not so for priority saves)
  std::int64_t expected_bytes = 0;  ///< of all ranks together, for the check of free space; 0 = this rank's
  std::span<const SaveItem> items = {};
  std::span<const MetaBlock> meta = {};
};

/// Communication between the ranks of one save. Calls block until all ranks have joined, up to the run's
/// deadline, then throw. gather and broadcast come from the saving thread, any from the training thread: give
/// them separate communicators.
class SaveExchange {
 public:
  virtual ~SaveExchange();
  /// Rank 0 gets the texts of all ranks in rank order, the others nothing.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  /// All ranks get rank 0's text.
  virtual std::string broadcast(const std::string& text) = 0;
  /// True on all ranks if true on one.
  virtual bool any(bool mine) = 0;
};

/// The exchange of a world of one rank.
class SoloExchange final : public SaveExchange {
 public:
  ~SoloExchange() override;
  std::vector<std::string> gather(const std::string& text) override;
  std::string broadcast(const std::string& text) override;
  bool any(bool mine) override;
};

struct StoreOptions {
  /// Generations to keep, at least 2: the newest ones with the bases of increments among them, and as many
  /// that are complete in themselves.
  int keep = 2;
  /// Called at the beginning of each phase of a save, on the thread that does it: "copy", "write", "sync",
  /// "manifest", "verify", "rename", "gc", "done". An exception thrown by it aborts the save like a failed
  /// write.
  std::function<void(const char* phase)> hook = {};
  /// Not empty: written into every generation as the meta entry "core/owner". recover() rejects generations
  /// of other owners.
  std::string owner = {};
};

/// Order among generations: a later timeline wins over a later step.
struct GenerationAge {
  std::int64_t timeline = 0;
  std::int64_t step = -1;
  bool operator<(const GenerationAge& other) const {
    return timeline != other.timeline ? timeline < other.timeline : step < other.step;
  }
};

/// A generation that could not be used.
struct RejectedGeneration {
  std::int64_t step = 0;
  std::string reason;  ///< names the file and the block
  std::string path;    ///< where it is now (step-<n>.bad)
  /// Step of the generation that was at fault, on which this one is built; -1: it was itself.
  std::int64_t because = -1;
};

struct RestorePoint {
  std::int64_t step = -1;  ///< -1: there is nothing to restore
  std::vector<RejectedGeneration> rejected;
};

/// Name, type and global shape of a logical tensor.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

/// A stored part in a policy's own encoding.
struct EncodedPart {
  std::string_view name;
  DType dtype = DType::kF32;
  Shape shape;                         ///< of the part
  std::span<const std::int64_t> rows;  ///< empty for a slice
  std::span<const std::byte> payload = {};
};
/// Fills `out` (dtype_bytes of the part) or throws.
using PartDecoder = std::function<void(const EncodedPart& part, std::span<std::byte> out)>;

/// One generation, with the chain of bases below an increment. Every block is checked against its CRC as it
/// is read. Reads any slice at any world size. One thread at a time; several readers may be open at once.
class CheckpointReader {
 public:
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;

  std::int64_t step() const;
  std::int64_t timeline() const;
  std::int64_t base() const;  ///< -1 for a generation complete in itself
  bool consistent() const;
  bool encoded() const;    ///< some part of the chain is in a recovery policy's own encoding
  int world_size() const;  ///< of the run that wrote it
  /// All tensors of the chain, by name.
  std::span<const TensorSpec> tensors() const;
  const TensorSpec* find(std::string_view name) const;
  /// Null when absent. Increments carry their own meta; bases are not asked.
  const std::string* meta(std::string_view name) const;
  std::span<const MetaBlock> meta() const;

  /// Throws Error(kRun) that names the first tensor, by name, that is missing, unknown, or of another type or
  /// shape.
  void check_model(std::span<const TensorSpec> model) const;

  /// Host memory; out has the tensor's type, and its global shape.
  void read(std::string_view name, TensorView out);
  /// out: elements [offset, offset + out.shape) of the tensor.
  void read_slice(std::string_view name, const Shape& offset, TensorView out);
  /// out: [rows.size(), ...]: the given rows of the outermost dimension, in the given order.
  void read_rows(std::string_view name, std::span<const std::int64_t> rows, TensorView out);
  void add_decoder(const std::string& encoding, PartDecoder decoder);

 private:
  friend class CheckpointStore;
  struct State;
  explicit CheckpointReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// The folder `checkpoints/`, which all ranks see. Rank 0 coordinates: it alone commits, recovers and
/// removes. Different ranks may use their own store objects, or share one, at the same time; saves of one
/// rank come one by one.
class CheckpointStore {
 public:
  /// The folder is made by the first save. `files` outlives the store.
  CheckpointStore(FileSystem& files, std::string folder, StoreOptions options);

  const std::string& folder() const noexcept { return folder_; }

  /// Collective: writes, commits or aborts everywhere. Never throws for failures of files or ranks: see the
  /// result.
  SaveResult save(const SaveRequest& request, int rank, int world_size, SaveExchange& exchange);

  /// Stage 1 of a save, on every rank: writes this rank's file into `step-<n>.tmp/` and syncs it. Returns the
  /// report for the coordinator; an error is in it and is not thrown.
  std::string write_part(const SaveRequest& request, int rank, int world_size);
  /// Takes part in the collective of save() with a failure, so that no rank waits for this one and none
  /// commits.
  SaveResult fail(const SaveRequest& request, int rank, int world_size, const std::string& reason,
                  SaveExchange& exchange);
  /// Stage 2, on rank 0 with the reports of all ranks: manifest, verification, rename, removal of old
  /// generations.
  SaveResult commit(std::int64_t step, std::span<const std::string> reports);
  /// Removes what a save of `step` may have left. Never throws.
  void abort(std::int64_t step) noexcept;

  /// Rank 0, while no rank saves: removes left-overs, then finds the newest generation of at most step
  /// `newest` whose every byte matches its manifest. Those that do not are renamed to `step-<n>.bad` and
  /// reported, together with the increments built on them; what is taken in their place is older.
  /// `consistent_only` passes over priority saves.
  RestorePoint recover(bool consistent_only, std::int64_t newest = std::numeric_limits<std::int64_t>::max());
  /// Rank 0, while no rank saves: renames a generation that is whole and still not believed, and the
  /// increments built on it, to `step-<n>.distrusted`. No reader takes these again. Throws FileError where
  /// they cannot be renamed.
  std::vector<RejectedGeneration> distrust(std::int64_t step, const std::string& reason);
  /// Rank 0, while no rank saves: removes what a crash left of saves and removals, where the medium allows
  /// it.
  void tidy() noexcept;
  /// Age of the newest generation of at most step `most` by its manifest, content unchecked: what recover()
  /// may find at best. One without a sound manifest counts as newer than all others.
  std::optional<GenerationAge> newest(bool consistent_only,
                                      std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  /// Steps of the generations there, ascending; none of them is checked.
  std::vector<std::int64_t> generations() const;
  /// Checks the manifests of the chain; file content is checked as it is read.
  CheckpointReader open(std::int64_t step) const;
  /// Reads and checks every byte of the generation and its bases; throws Error(kRun) that names file and
  /// block.
  void verify(std::int64_t step) const;
  /// Rank 0: removes what StoreOptions::keep does not ask for. Returns the steps removed.
  std::vector<std::int64_t> collect_garbage();

 private:
  friend class AsyncSaver;
  void phase(const char* name) const;
  void publish(std::int64_t step);
  void verify_chain(std::int64_t step, std::int64_t& link) const;
  SaveResult conclude(std::int64_t step, const std::string& report, int rank, SaveExchange& exchange);

  FileSystem& files_;
  std::string folder_;
  StoreOptions options_;
};

/// Saves in the background: one thread, one private buffer, one save at a time.
/// Made and used by the training thread of one rank.
class AsyncSaver {
 public:
  /// Copies a part that is not in host memory.
  using Copier = std::function<void(const TensorView& from, std::span<std::byte> to)>;

  /// store and exchange outlive the saver.
  AsyncSaver(CheckpointStore& store, int rank, int world_size, SaveExchange& exchange, Copier copier);
  /// Finishes the save in flight.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  /// Collective. False, on all ranks, if any rank is still writing the previous save: that of `step` then
  /// counts as skipped. True: all ranks know how every save before this one ended.
  bool ready(std::int64_t step);
  /// After ready(). Copies everything before it returns; the caller may then write to its tensors. A failed
  /// copy aborts the save on all ranks.
  void submit(const SaveRequest& request);
  /// ready, and submit if so.
  bool save(const SaveRequest& request);
  /// Saves after this go to `store`, which outlives the saver. While nothing is in flight.
  void use(CheckpointStore& store);
  bool busy() const;
  /// Waits until nothing is in flight. Throws DeadlineError, which names rank and step, after `seconds`.
  void wait(double seconds);
  /// Results of saves that have ended since the last call, oldest first, skipped saves included.
  std::vector<SaveResult> take_results();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// xxh3-128 of named tensors: over (name, type, global shape, xxh3-128 of the bytes) in the order of names.
/// Tensors may come in any order, and in pieces; digests made on other ranks can be added.
class StateHasher {
 public:
  StateHasher();
  ~StateHasher();
  StateHasher(const StateHasher&) = delete;
  StateHasher& operator=(const StateHasher&) = delete;

  /// A whole logical tensor, host memory. Throws Error(kRun) for a name seen before.
  void add(std::string_view name, const TensorView& tensor);
  /// The same in pieces: begin, any number of feed, end. Throws if the bytes are not as many as the shape
  /// needs.
  void begin(std::string_view name, DType dtype, const Shape& shape);
  void feed(std::span<const std::byte> bytes);
  void end();
  /// One line per tensor, for another rank's merge().
  std::string digests() const;
  /// Adds the lines of another rank's digests(); throws on text that is not such lines.
  void merge(std::string_view digests);
  /// 32 hexadecimal digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

TENON_ABI_END
