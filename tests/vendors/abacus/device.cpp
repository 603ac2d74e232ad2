// A device for tests, on torch's PrivateUse1: its memory is the host's, its kernels are the CPU's, and all the rest is
// its own: devices, streams, events, generators, a bounded allocator, and a backend over gloo. Work queued on a device
// takes it some time that the host does not wait for, so that a clock read without synchronising is wrong.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_copy_from_and_resize_native.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

namespace {
using at::Tensor;
using c10::Device, c10::DeviceIndex, c10::DeviceType, c10::Stream;
constexpr DeviceType KIND = DeviceType::PrivateUse1;
constexpr auto KEYS = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}
const int64_t DEVICES = setting("ABACUS_DEVICES", 2), BYTES = setting("ABACUS_BYTES", 1ll << 30);
const int64_t LAG_NS = setting("ABACUS_LAG_NS", 0);

// ---- Time: what is queued on a device ends when all before it has ended.
struct State {
  int64_t ends_ns = 0, allocated = 0, peak = 0, synchronized = 0, events = 0;
};
std::mutex lock;
std::map<DeviceIndex, State> states;
thread_local DeviceIndex current = 0;
thread_local std::map<DeviceIndex, c10::StreamId> streams;
c10::StreamId latest_stream = 0;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
void queue(DeviceIndex device, int64_t ns) {
  std::lock_guard guard(lock);
  auto& state = states[device];
  state.ends_ns = std::max(now(), state.ends_ns) + ns;
}
void wait_until(int64_t ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<int64_t>(0, ns - now())));
}
int64_t end_of(DeviceIndex device) {
  std::lock_guard guard(lock);
  return std::max(now(), states[device].ends_ns);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return KIND; }
  Device exchangeDevice(Device device) const override {
    Device before(KIND, current);
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return Device(KIND, current); }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() < DEVICES, "abacus:", int(device.index()), ": there are ", DEVICES, " devices");
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  Stream getStream(Device device) const override {
    auto index = device.index() < 0 ? current : device.index();
    return Stream(Stream::UNSAFE, Device(KIND, index), streams[index]);
  }
  Stream getDefaultStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getNewStream(Device device, int) const override { return Stream(Stream::UNSAFE, device, ++latest_stream); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  Stream exchangeStream(Stream stream) const override {
    auto before = getStream(stream.device());
    streams[stream.device_index()] = stream.id();
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(DEVICES); }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<int64_t*>(event); }
  void record(void** event, const Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new int64_t(0);
    *static_cast<int64_t*>(*event) = end_of(stream.device_index());
    std::lock_guard guard(lock);
    ++states[stream.device_index()].events;
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void* event) const override { return event == nullptr || *static_cast<int64_t*>(event) <= now(); }
  bool queryStream(const Stream& stream) const override { return end_of(stream.device_index()) <= now(); }
  void synchronizeStream(const Stream& stream) const override { synchronizeDevice(stream.device_index()); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) wait_until(*static_cast<int64_t*>(event));
  }
  void synchronizeDevice(const DeviceIndex device) const override {
    auto index = device < 0 ? current : device;
    wait_until(end_of(index));
    std::lock_guard guard(lock);
    ++states[index].synchronized;
  }
  double elapsedTime(void* begin, void* end, const DeviceIndex) const override {
    return double(*static_cast<int64_t*>(end) - *static_cast<int64_t*>(begin)) / 1e6;
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ---- Memory
struct Block {
  void* data;
  int64_t bytes;
  DeviceIndex device;
};
void release(void* context) {
  auto* block = static_cast<Block*>(context);
  {
    std::lock_guard guard(lock);
    states[block->device].allocated -= block->bytes;
  }
  std::free(block->data);
  delete block;
}
struct Memory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t size) override {
    auto bytes = static_cast<int64_t>((size + 511) / 512 * 512);
    {
      std::lock_guard guard(lock);
      auto& state = states[current];
      TORCH_CHECK_WITH(OutOfMemoryError, state.allocated + bytes <= BYTES, "abacus out of memory: ", bytes,
                       " bytes are asked for, ", BYTES - state.allocated, " are free");
      state.allocated += bytes;
      state.peak = std::max(state.peak, state.allocated);
    }
    void* data = size == 0 ? nullptr : std::aligned_alloc(512, bytes);
    return {data, new Block{data, bytes, current}, &release, Device(KIND, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, size_t bytes) const override { std::memcpy(target, source, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    std::lock_guard guard(lock);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = states[device].allocated;
    stats.allocated_bytes[0].peak = states[device].peak;
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex device) override {
    std::lock_guard guard(lock);
    states[device].peak = states[device].allocated;
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    std::lock_guard guard(lock);
    return {BYTES - states[device].allocated, BYTES};
  }
} memory;
REGISTER_ALLOCATOR(KIND, &memory);

// ---- Generators: a stream of numbers of the device's own, by the host's algorithm.
struct Random final : c10::GeneratorImpl {
  explicit Random(DeviceIndex device)
      : GeneratorImpl(Device(KIND, device), KEYS), host(at::detail::createCPUGenerator()) {}
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.unsafeGetGeneratorImpl()->get_state(); }
  Random* clone_impl() const override {
    auto* made = new Random(device().index());
    made->host = host.clone();
    return made;
  }
  at::Generator host;
};
const at::Generator& generator_of(DeviceIndex device) {
  static std::vector<at::Generator> made = [] {
    std::vector<at::Generator> found;
    for (DeviceIndex each = 0; each < DEVICES; ++each) found.push_back(at::make_generator<Random>(each));
    return found;
  }();
  return made[device < 0 ? current : device];
}
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return DEVICES > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(DEVICES); }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex device) const override { Guard().setDevice(Device(KIND, device)); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override { return std::exchange(current, device); }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? current : exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return generator_of(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override { return at::make_generator<Random>(device); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return at::getCPUAllocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    auto data = memory.allocate(size);
    std::memcpy(data.get(), storage.data(), std::min(size, storage.nbytes()));
    storage.set_data_ptr(std::move(data));
    storage.set_nbytes(size);
  }
};

// ---- Kernels
Tensor on_host(const Tensor& tensor) {  // the same bytes, seen as the host's
  if (!tensor.defined() || tensor.device().type() != KIND) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void*) {},
                       tensor.options().device(at::kCPU));
}
Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<c10::Layout>,
             std::optional<Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(device.value_or(Device(KIND, current)));
  return at::detail::empty_generic(sizes, &memory, KEYS, c10::dtype_or_default(type), format);
}
Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> type,
                     std::optional<c10::Layout>, std::optional<Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(device.value_or(Device(KIND, current)));
  return at::detail::empty_strided_generic(sizes, strides, &memory, KEYS, c10::dtype_or_default(type));
}
Tensor copy_from(const Tensor& source, const Tensor& target, bool) {
  on_host(target).copy_(on_host(source));
  queue(current, LAG_NS);
  return target;
}
Tensor copy_from_and_resize(const Tensor& source, const Tensor& target) {
  at::native::resize_(target, source.sizes(), std::nullopt);
  return copy_from(source, target, false);
}
at::Scalar local_scalar(const Tensor& tensor) {
  wait_until(end_of(tensor.device().index()));
  return at::_local_scalar_dense(on_host(tensor));
}
const Tensor& resize(const Tensor& tensor, c10::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(tensor, sizes, format);
}
Tensor& set_storage(Tensor& tensor, c10::Storage source, int64_t offset, c10::IntArrayRef sizes,
                    c10::IntArrayRef strides) {
  return at::native::set_storage_cpu_(tensor, std::move(source), offset, sizes, strides);
}
Tensor& set_empty(Tensor& tensor) {
  return tensor.set_(c10::Storage(c10::Storage::use_byte_size_t(), 0, &memory, true), 0, {0}, {});
}
Tensor view(const Tensor& tensor, c10::IntArrayRef sizes) { return at::native::view(tensor, sizes); }

// All other kernels are the host's. Those that draw random numbers draw the device's: its generator takes the place of
// the host's, as an argument and as the default.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto host = at::detail::getDefaultCPUGenerator();
  const bool draws = op.hasTag(at::Tag::nondeterministic_seeded);
  at::Generator own = generator_of(-1);
  for (auto& value : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (value.isGenerator() && value.toGenerator().device().type() == KIND) {
      own = value.toGenerator();
      const_cast<c10::IValue&>(value) = c10::IValue(host);
    }
  }
  auto& numbers = static_cast<Random*>(own.unsafeGetGeneratorImpl())->host;
  auto kept = draws ? host.get_state() : Tensor();
  if (draws) host.set_state(numbers.get_state());
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
  if (draws) {
    numbers.set_state(host.get_state());
    host.set_state(kept);
  }
  queue(current, LAG_NS);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_", set_empty);
  m.impl("view", view);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("alias", at::native::alias);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
}

// ---- Collectives: gloo's, which sees the device's bytes as the host's.
using Tensors = std::vector<Tensor>;
Tensors on_host(const Tensors& tensors) {
  Tensors found;
  for (const auto& each : tensors) found.push_back(on_host(each));
  return found;
}
std::vector<Tensors> on_host(const std::vector<Tensors>& lists) {
  std::vector<Tensors> found;
  for (const auto& each : lists) found.push_back(on_host(each));
  return found;
}
struct Collectives final : c10d::Backend {
  using Done = c10::intrusive_ptr<c10d::Work>;
  explicit Collectives(c10::intrusive_ptr<c10d::Backend> host)
      : Backend(host->getRank(), host->getSize()), host(std::move(host)) {}
  const std::string getBackendName() const override { return "abacus"; }
  void setSequenceNumberForGroup() override { host->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return host->getSequenceNumberForGroup(); }
  void setTimeout(std::chrono::milliseconds timeout) override { host->setTimeout(timeout); }
  Done broadcast(Tensors& t, const c10d::BroadcastOptions& o) override { auto h = on_host(t); return host->broadcast(h, o); }
  Done allreduce(Tensors& t, const c10d::AllreduceOptions& o) override { auto h = on_host(t); return host->allreduce(h, o); }
  Done allreduce_coalesced(Tensors& t, const c10d::AllreduceCoalescedOptions& o) override {
    auto h = on_host(t);
    return host->allreduce_coalesced(h, o);
  }
  Done reduce(Tensors& t, const c10d::ReduceOptions& o) override { auto h = on_host(t); return host->reduce(h, o); }
  Done allgather(std::vector<Tensors>& out, Tensors& in, const c10d::AllgatherOptions& o) override {
    auto h = on_host(out);
    auto g = on_host(in);
    return host->allgather(h, g, o);
  }
  Done _allgather_base(Tensor& out, Tensor& in, const c10d::AllgatherOptions& o) override {
    auto h = on_host(out), g = on_host(in);
    return host->_allgather_base(h, g, o);
  }
  Done allgather_into_tensor_coalesced(Tensors& out, Tensors& in, const c10d::AllgatherOptions& o) override {
    auto h = on_host(out), g = on_host(in);
    return host->allgather_into_tensor_coalesced(h, g, o);
  }
  Done gather(std::vector<Tensors>& out, Tensors& in, const c10d::GatherOptions& o) override {
    auto h = on_host(out);
    auto g = on_host(in);
    return host->gather(h, g, o);
  }
  Done scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ScatterOptions& o) override {
    auto h = on_host(out);
    auto g = on_host(in);
    return host->scatter(h, g, o);
  }
  Done reduce_scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ReduceScatterOptions& o) override {
    auto h = on_host(out);
    auto g = on_host(in);
    return host->reduce_scatter(h, g, o);
  }
  Done _reduce_scatter_base(Tensor& out, Tensor& in, const c10d::ReduceScatterOptions& o) override {
    auto h = on_host(out), g = on_host(in);
    return host->_reduce_scatter_base(h, g, o);
  }
  Done reduce_scatter_tensor_coalesced(Tensors& out, Tensors& in, const c10d::ReduceScatterOptions& o) override {
    auto h = on_host(out), g = on_host(in);
    return host->reduce_scatter_tensor_coalesced(h, g, o);
  }
  Done alltoall_base(Tensor& out, Tensor& in, std::vector<int64_t>& a, std::vector<int64_t>& b,
                     const c10d::AllToAllOptions& o) override {
    auto h = on_host(out), g = on_host(in);
    return host->alltoall_base(h, g, a, b, o);
  }
  Done alltoall(Tensors& out, Tensors& in, const c10d::AllToAllOptions& o) override {
    auto h = on_host(out), g = on_host(in);
    return host->alltoall(h, g, o);
  }
  Done send(Tensors& t, int to, int tag) override { auto h = on_host(t); return host->send(h, to, tag); }
  Done recv(Tensors& t, int from, int tag) override { auto h = on_host(t); return host->recv(h, from, tag); }
  Done recvAnysource(Tensors& t, int tag) override { auto h = on_host(t); return host->recvAnysource(h, tag); }
  Done barrier(const c10d::BarrierOptions&) override { return host->barrier({}); }
  c10::intrusive_ptr<c10d::Backend> host;
};
}  // namespace

PYBIND11_MODULE(abacus_device, m) {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  m.def("make_backend", [](const c10::intrusive_ptr<c10d::Backend>& host) -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<Collectives>(host);
  });
  m.def("sleep", [](int64_t cycles) { queue(current, cycles); });
  m.def("generator", [](int64_t device) { return generator_of(static_cast<DeviceIndex>(device)); });
  m.def("counts", [](int64_t device) {
    std::lock_guard guard(lock);
    const auto& state = states[static_cast<DeviceIndex>(device)];
    return std::map<std::string, int64_t>{{"synchronized", state.synchronized}, {"events", state.events}};
  });
}
