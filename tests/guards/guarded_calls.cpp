// A library that is preloaded into a program (LD_PRELOAD) and intercepts its plugins' calls of oneDNN and
// FFTW. Each call gets copies of its operands between guard bands; scratch, and results that are only
// written, hold NaN before it. A call that writes outside of its memory, changes an operand, or does not
// return in time ends the program with a message. Correct results are unchanged.
//   TENON_GUARDED_CALL_SECONDS: the time that a call has; 60 where unset.
#include <dlfcn.h>
#include <dnnl.h>
#include <fftw3.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>

namespace {

constexpr std::size_t kBand = 4096, kLine = 64;
constexpr std::byte kFill{0xFF};  // NaN in every floating-point format
constexpr int kViolation = 3;     // exit status

[[noreturn]] void refuse(const std::string& what) {
  const std::string line = "guarded call: " + what + "\n";
  _exit(write(STDERR_FILENO, line.data(), line.size()) < 0 ? kViolation + 1 : kViolation);
}

/// The library's own function that one of ours replaces.
template <typename Function>
Function* original(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) refuse(std::string(name) + " is in no library after this one");
  return reinterpret_cast<Function*>(found);
}

/// The called primitive; its name is queried only for a message.
struct Callee {
  const_dnnl_primitive_t primitive = nullptr;  ///< null: FFTW

  std::string name() const {
    if (primitive == nullptr) return "a transform of FFTW";
    const_dnnl_primitive_desc_t desc = nullptr;
    const char* implementation = "";
    if (dnnl_primitive_get_primitive_desc(primitive, &desc) == dnnl_success)
      dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &implementation);
    return std::string("oneDNN's ") + implementation;
  }
};

struct Watched {
  std::atomic<std::int64_t> deadline{0};  ///< ms; 0: idle
  Callee callee;
};
std::array<Watched, 256> watched;  // one entry per call in flight

std::int64_t now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}
std::int64_t limit() {
  static const std::int64_t ms = [] {
    const char* const text = std::getenv("TENON_GUARDED_CALL_SECONDS");
    return static_cast<std::int64_t>(1000 * (text == nullptr ? 60.0 : std::strtod(text, nullptr)));
  }();
  return ms;
}

/// During its lifetime a call is in flight. One thread per process watches all of them.
class Watch {
 public:
  explicit Watch(const Callee& callee) {
    start();
    for (Watched& entry : watched) {
      std::int64_t idle = 0;
      if (!entry.deadline.compare_exchange_strong(idle, INT64_MAX)) continue;
      entry.callee = callee;
      entry.deadline = now() + limit();
      mine_ = &entry;
      return;
    }
    refuse("more calls are in flight than are watched");
  }
  ~Watch() { mine_->deadline = 0; }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  static void start() {
    static std::atomic<pid_t> started{0};
    pid_t before = started;
    if (before == getpid() || !started.compare_exchange_strong(before, getpid())) return;
    std::thread([] {
      for (;; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
        for (const Watched& entry : watched) {
          const std::int64_t deadline = entry.deadline;
          if (deadline != 0 && now() >= deadline)
            refuse(entry.callee.name() + " did not return within " + std::to_string(limit()) + " ms");
        }
      }
    }).detach();
  }

  Watched* mine_ = nullptr;
};

enum class Use { kRead, kWritten, kReadAndWritten, kScratch };

/// One piece of memory passed to a call, and its copy.
struct Piece {
  void* data = nullptr;
  std::size_t bytes = 0;
  Use use = Use::kRead;
  const char* what = "";
  std::byte* copy = nullptr;

  std::size_t room() const { return 2 * kBand + (bytes + 2 * kLine - 1) / kLine * kLine; }
  std::string text() const { return "its " + std::string(what) + " of " + std::to_string(bytes) + " bytes"; }
};

/// Memory that the thread keeps.
std::byte* memory(std::size_t bytes) {
  thread_local std::byte* held = nullptr;
  thread_local std::size_t size = 0;
  if (bytes <= size) return held;
  if (held != nullptr) munmap(held, size);
  size = bytes + bytes / 2;
  void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) refuse("no memory for copies of " + std::to_string(bytes) + " bytes");
  return held = static_cast<std::byte*>(mapped);
}

/// Copies all pieces between bands; each keeps its distance from the begin of a cache line.
void open(std::span<Piece> pieces) {
  std::size_t taken = 0;
  for (const Piece& piece : pieces) taken += piece.room();
  std::byte* next = memory(taken);
  std::memset(next, static_cast<int>(kFill), taken);
  for (Piece& piece : pieces) {
    piece.copy = next + kBand + reinterpret_cast<std::uintptr_t>(piece.data) % kLine;
    if (piece.use == Use::kRead || piece.use == Use::kReadAndWritten)
      std::memcpy(piece.copy, piece.data, piece.bytes);
    next += piece.room();
  }
}

void close(std::span<const Piece> pieces, const Callee& callee) {
  const auto is_new = [](std::byte b) { return b != kFill; };
  for (const Piece& piece : pieces) {
    const std::span before(piece.copy - kBand, kBand), past(piece.copy + piece.bytes, kBand);
    const auto first = std::find_if(before.begin(), before.end(), is_new);
    const auto last = std::find_if(past.rbegin(), past.rend(), is_new);
    if (first != before.end()) {
      refuse(callee.name() + " wrote " + std::to_string(before.end() - first) + " bytes before " +
             piece.text());
    }
    if (last != past.rend())
      refuse(callee.name() + " wrote " + std::to_string(past.rend() - last) + " bytes past " + piece.text());
    if (piece.use == Use::kRead && std::memcmp(piece.copy, piece.data, piece.bytes) != 0)
      refuse(callee.name() + " changed " + piece.text());
    if (piece.use == Use::kWritten || piece.use == Use::kReadAndWritten)
      std::memcpy(piece.data, piece.copy, piece.bytes);
  }
}

void check(dnnl_status_t status) {
  if (status != dnnl_success) refuse("oneDNN answers no question about a call");
}

/// Returns whether a primitive adds to its result.
bool adds(const_dnnl_primitive_t primitive) {
  const_dnnl_primitive_desc_t desc = nullptr;
  const_dnnl_primitive_attr_t attributes = nullptr;
  const_dnnl_post_ops_t ops = nullptr;
  check(dnnl_primitive_get_primitive_desc(primitive, &desc));
  check(dnnl_primitive_desc_get_attr(desc, &attributes));
  check(dnnl_primitive_attr_get_post_ops(attributes, &ops));
  for (int i = 0; i < dnnl_post_ops_len(ops); ++i)
    if (dnnl_post_ops_get_kind(ops, i) == dnnl_sum) return true;
  return false;
}

Piece piece_of(const dnnl_exec_arg_t& argument, bool sum) {
  Piece piece;
  const dnnl_memory_desc_t* desc = nullptr;
  check(dnnl_memory_get_memory_desc(argument.memory, &desc));
  check(dnnl_memory_get_data_handle(argument.memory, &piece.data));
  piece.bytes = dnnl_memory_desc_get_size(desc);
  const Use result = sum ? Use::kReadAndWritten : Use::kWritten;
  switch (argument.arg) {
    case DNNL_ARG_DST:
      piece.use = result, piece.what = "result";
      break;
    case DNNL_ARG_DIFF_SRC:
      piece.use = result, piece.what = "gradient of x";
      break;
    case DNNL_ARG_DIFF_WEIGHTS:
      piece.use = result, piece.what = "gradient of w";
      break;
    case DNNL_ARG_SCRATCHPAD:
      piece.use = Use::kScratch, piece.what = "scratch";
      break;
    default:
      piece.what = "operand";
  }
  return piece;
}

// Plans of FFTW, by address: the memory that they read and write.
struct Transform {
  std::size_t from = 0, to = 0;  ///< bytes
};
std::mutex plans_mutex;
std::map<const void*, Transform> plans;

template <typename Plan>
Plan remember(Plan plan, std::size_t from, std::size_t to) {
  const std::scoped_lock lock(plans_mutex);
  plans[plan] = {from, to};
  return plan;
}

template <typename Run>
void run_transform(const void* plan, void* from, void* to, Run run) {
  Transform transform;
  {
    const std::scoped_lock lock(plans_mutex);
    const auto found = plans.find(plan);
    if (found == plans.end()) refuse("a plan of FFTW that nobody saw being made");
    transform = found->second;
  }
  // Transforms to real numbers may destroy their input.
  std::array<Piece, 2> pieces{Piece{from, transform.from, Use::kReadAndWritten, "operand"},
                              Piece{to, transform.to, Use::kWritten, "result"}};
  const std::span<Piece> used(pieces.data(), from == to ? 1 : 2);
  open(used);
  const Watch watch({});
  run(pieces[0].copy, from == to ? pieces[0].copy : pieces[1].copy);
  close(used, {});
}

}  // namespace

extern "C" {

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                                     const dnnl_exec_arg_t* arguments) {
  static auto* const execute = original<decltype(dnnl_primitive_execute)>("dnnl_primitive_execute");
  std::array<Piece, 8> all;
  if (count > static_cast<int>(all.size())) refuse("a call has more operands than are guarded");
  const std::span<Piece> pieces(all.data(), count);
  const bool sum = adds(primitive);
  for (int i = 0; i < count; ++i) all[i] = piece_of(arguments[i], sum);
  open(pieces);
  for (int i = 0; i < count; ++i) check(dnnl_memory_set_data_handle(arguments[i].memory, all[i].copy));
  dnnl_status_t status = dnnl_success;
  {
    const Watch watch({primitive});
    status = execute(primitive, stream, count, arguments);
    if (status == dnnl_success) status = dnnl_stream_wait(stream);
  }
  for (int i = 0; i < count; ++i) check(dnnl_memory_set_data_handle(arguments[i].memory, all[i].data));
  close(pieces, {primitive});
  return status;
}

#define TENON_GUARD_FFTW(prefix, real)                                                                  \
  prefix##_plan prefix##_plan_dft_r2c_1d(int n, real* from, prefix##_complex* to, unsigned flags) {     \
    static auto* const plan = original<decltype(prefix##_plan_dft_r2c_1d)>(#prefix "_plan_dft_r2c_1d"); \
    const std::size_t size = n;                                                                         \
    return remember(plan(n, from, to, flags), size * sizeof(real), (size / 2 + 1) * sizeof(*to));       \
  }                                                                                                     \
  prefix##_plan prefix##_plan_dft_c2r_1d(int n, prefix##_complex* from, real* to, unsigned flags) {     \
    static auto* const plan = original<decltype(prefix##_plan_dft_c2r_1d)>(#prefix "_plan_dft_c2r_1d"); \
    const std::size_t size = n;                                                                         \
    return remember(plan(n, from, to, flags), (size / 2 + 1) * sizeof(*from), size * sizeof(real));     \
  }                                                                                                     \
  prefix##_plan prefix##_plan_dft_1d(int n, prefix##_complex* from, prefix##_complex* to, int sign,     \
                                     unsigned flags) {                                                  \
    static auto* const plan = original<decltype(prefix##_plan_dft_1d)>(#prefix "_plan_dft_1d");         \
    const std::size_t bytes = n * sizeof(*from);                                                        \
    return remember(plan(n, from, to, sign, flags), bytes, bytes);                                      \
  }                                                                                                     \
  void prefix##_execute_dft_r2c(const prefix##_plan plan, real* from, prefix##_complex* to) {           \
    static auto* const run = original<decltype(prefix##_execute_dft_r2c)>(#prefix "_execute_dft_r2c");  \
    run_transform(plan, from, to, [&](void* x, void* y) {                                               \
      run(plan, static_cast<real*>(x), static_cast<prefix##_complex*>(y));                              \
    });                                                                                                 \
  }                                                                                                     \
  void prefix##_execute_dft_c2r(const prefix##_plan plan, prefix##_complex* from, real* to) {           \
    static auto* const run = original<decltype(prefix##_execute_dft_c2r)>(#prefix "_execute_dft_c2r");  \
    run_transform(plan, from, to, [&](void* x, void* y) {                                               \
      run(plan, static_cast<prefix##_complex*>(x), static_cast<real*>(y));                              \
    });                                                                                                 \
  }                                                                                                     \
  void prefix##_execute_dft(const prefix##_plan plan, prefix##_complex* from, prefix##_complex* to) {   \
    static auto* const run = original<decltype(prefix##_execute_dft)>(#prefix "_execute_dft");          \
    run_transform(plan, from, to, [&](void* x, void* y) {                                               \
      run(plan, static_cast<prefix##_complex*>(x), static_cast<prefix##_complex*>(y));                  \
    });                                                                                                 \
  }
TENON_GUARD_FFTW(fftwf, float)
TENON_GUARD_FFTW(fftw, double)

}  // extern "C"
