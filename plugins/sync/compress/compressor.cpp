// Parts and compression errors. A new error is written beside the old one and replaces it once the update
// that it belongs to is applied, so that a refused slot leaves no trace.
#include "compressor.hpp"

#include <tenon/error.hpp>
#include <tenon/optimizer.hpp>

#include <algorithm>
#include <string>

namespace tenon::sync_compress {

Compressor::Compressor(const char* name, const Options& options)
    : SyncDecorator(options.component<Sync>("inner")),
      name_(name),
      start_after_(options.integer("start_after")),
      feeds_back_(options.boolean("error_feedback")) {}

std::int64_t Compressor::first_round() const {
  return std::max(start_after_ > 0 ? start_after_ + 1 : 0, SyncDecorator::first_round());
}

Compressor::~Compressor() {
  group_.reset();
  for (const TensorView& view : owned_) device_->release(view.data, view.bytes());
}

void Compressor::start(Replica& replica) {
  auto* user = static_cast<MeanUser*>(SyncDecorator::query(MeanUser::kId));
  if (user == nullptr) {
    fail_config(std::string("sync ") + name_ +
                ": the inner strategy exchanges no means of gradients or of pseudo-gradients that another "
                "could compress (" +
                MeanUser::kId + "); take ddp, diloco or palsgd as [sync.inner]");
  }
  user->take_means_by(*this);
  device_ = &replica.device();
  elementwise_ = &device_->family<Elementwise>();
  SyncDecorator::start(replica);
}

void* Compressor::query(std::string_view id) {
  if (id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  return id == MeanUser::kId ? nullptr : SyncDecorator::query(id);  // this class reduces its means
}

TensorView Compressor::allocate(DType dtype, std::int64_t elements) {
  TensorView view;
  view.dtype = dtype;
  view.shape = Shape{elements};
  view.space = device_->space();
  view.data = device_->allocate(view.bytes());
  owned_.push_back(view);
  return view;
}

TensorView Compressor::slice(TensorView view, std::int64_t begin, std::int64_t elements) {
  view.data = static_cast<std::byte*>(view.data) + dtype_bytes(view.dtype, begin);
  view.shape = Shape{elements};
  return view;
}

void Compressor::prepare(Replica& replica, Purpose purpose, std::span<const MeanPart> parts) {
  if (replica.replicas() == 1) return;
  group_ = replica.open(name_, purpose);
  if (feeds_back_) error_ = &replica.create_set(std::string(name_) + ".error");
  for (const MeanPart& wanted : parts) {
    Part part;
    part.data = flat_reals(wanted.data);
    const std::int64_t reals = part.data.elements() / std::max<std::int64_t>(1, wanted.data.elements());
    if (error_ != nullptr) {
      part.error = slice(flat_reals(error_->arena(wanted.arena)), wanted.begin * reals, part.data.elements());
      part.pending = allocate(part.data.dtype, part.data.elements());
    }
    for (const ParameterInfo& info : replica.live().parameters()) {
      const bool trained = info.spec.role == Role::kParameter && info.spec.trainable;
      if (!trained || info.arena != wanted.arena || info.local.elements() == 0 || info.begin < wanted.begin ||
          info.begin >= wanted.begin + wanted.data.elements())
        continue;
      Piece piece;
      piece.parameter = info.index;
      piece.begin = (info.begin - wanted.begin) * reals;
      piece.elements = info.local.elements() * reals;
      piece.rows = info.local.rank() == 0 ? 1 : info.local[0];
      piece.columns = piece.elements / piece.rows;
      part.pieces.push_back(piece);
    }
    parts_.push_back(std::move(part));
    prepare_part(parts_.size() - 1);
  }
  added_.reserve(parts_.size());
  pending_.reserve(parts_.size());
}

void Compressor::add(std::size_t index, double scale) {
  if (group_ == nullptr) return;
  Part& part = parts_[index];
  part.scale = scale;
  added_.push_back(index);
  compressing_ = replica().slot() >= start_after_;
  if (!compressing_) {
    part.request = group_->start_all_reduce(part.data, ReduceOp::kSum);
    return;
  }
  if (feeds_back_) elementwise_->axpy(1 / scale, part.error, part.data);
  begin(index);
}

void Compressor::finish() {
  struct Forget {  // each request is waited for once, even if a wait throws
    std::vector<std::size_t>& added;
    ~Forget() { added.clear(); }
  } forget{added_};
  if (added_.empty()) return;
  if (!compressing_) {
    for (const std::size_t index : added_) {
      group_->wait(parts_[index].request);
      elementwise_->scale(parts_[index].data, 1.0 / members());
    }
    return;
  }
  end(added_);
  for (const std::size_t index : added_) {
    if (feeds_back_) elementwise_->scale(parts_[index].pending, parts_[index].scale);
    pending_.push_back(index);
  }
}

void Compressor::keep() {
  for (const std::size_t index : pending_) {
    if (feeds_back_) device_->copy(parts_[index].pending, parts_[index].error);
    commit(index);
  }
  pending_.clear();
}

// The pending means are gradients, whose update may have been refused; means that the inner strategy computes
// in its own after_step are used at once.
void Compressor::after_step(const Slot& slot, const StepOutcome& outcome) {
  if (outcome.applied) keep();
  pending_.clear();
  SyncDecorator::after_step(slot, outcome);
  keep();
}

}  // namespace tenon::sync_compress
