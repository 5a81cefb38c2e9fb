// What a Vulkan driver's compiler says of compute pipelines: registers, spills, occupancy. Runs on drivers without a
// device, too: Mesa's RADV has one for each family of AMD's GPUs (RADV_FORCE_FAMILY).
// usage: pipeline-statistics (FILE.spv ENTRY BINDINGS)…, where BINDINGS has a letter for each binding from 0: u for a
// uniform, s for a storage buffer. Prints FILE, then name=value of each statistic, all apart by tabs, a line each.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

enum { MOST_BINDINGS = 16, MOST_STATISTICS = 64 };

static void need(VkResult result, const char *what) {
  if (result >= 0) return;
  fprintf(stderr, "expected %s, got result %d\n", what, result);
  exit(1);
}

static uint32_t *words_of(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) { perror(path); exit(1); }
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  uint32_t *words = malloc(*bytes);
  if (fread(words, 1, *bytes, file) != *bytes) { perror(path); exit(1); }
  fclose(file);
  return words;
}

static VkDevice open_device(void) {
  VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_3};
  VkInstanceCreateInfo instance_info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                        .pApplicationInfo = &application};
  VkInstance instance;
  need(vkCreateInstance(&instance_info, NULL, &instance), "an instance");
  uint32_t count = 1;
  VkPhysicalDevice physical;
  need(vkEnumeratePhysicalDevices(instance, &count, &physical), "a physical device");
  if (count == 0) { fprintf(stderr, "expected a physical device, got none\n"); exit(1); }
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
      .pipelineExecutableInfo = VK_TRUE};
  VkPhysicalDeviceVulkan13Features in13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
                                           .pNext = &executables,
                                           .maintenance4 = VK_TRUE,
                                           .shaderZeroInitializeWorkgroupMemory = VK_TRUE};
  VkPhysicalDeviceVulkan12Features in12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                           .pNext = &in13,
                                           .vulkanMemoryModel = VK_TRUE,
                                           .vulkanMemoryModelDeviceScope = VK_TRUE};
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                        .pNext = &in12,
                                        .features.robustBufferAccess = VK_TRUE};
  float priority = 1;
  VkDeviceQueueCreateInfo queue = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
  const char *extension = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
  VkDeviceCreateInfo device_info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                    .pNext = &features,
                                    .queueCreateInfoCount = 1,
                                    .pQueueCreateInfos = &queue,
                                    .enabledExtensionCount = 1,
                                    .ppEnabledExtensionNames = &extension};
  VkDevice device;
  need(vkCreateDevice(physical, &device_info, NULL, &device), "a device that tells statistics");
  return device;
}

static VkPipelineLayout layout_of(VkDevice device, const char *bindings) {
  VkDescriptorSetLayoutBinding list[MOST_BINDINGS];
  uint32_t count = 0;
  for (; bindings[count] && count < MOST_BINDINGS; count++)
    list[count] = (VkDescriptorSetLayoutBinding){
        .binding = count,
        .descriptorType =
            bindings[count] == 'u' ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
        .descriptorCount = 1,
        .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
  VkDescriptorSetLayoutCreateInfo set_info = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = count, .pBindings = list};
  VkDescriptorSetLayout set;
  need(vkCreateDescriptorSetLayout(device, &set_info, NULL, &set), "a layout of bindings");
  VkPipelineLayoutCreateInfo layout_info = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .setLayoutCount = 1, .pSetLayouts = &set};
  VkPipelineLayout layout;
  need(vkCreatePipelineLayout(device, &layout_info, NULL, &layout), "a pipeline layout");
  return layout;
}

static VkPipeline compile(VkDevice device, const char *path, const char *entry, const char *bindings) {
  size_t bytes;
  uint32_t *words = words_of(path, &bytes);
  VkShaderModuleCreateInfo module_info = {
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = words};
  VkShaderModule module;
  need(vkCreateShaderModule(device, &module_info, NULL, &module), "a shader module");
  VkComputePipelineCreateInfo pipeline_info = {
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = module,
                .pName = entry},
      .layout = layout_of(device, bindings)};
  VkPipeline pipeline;
  need(vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &pipeline_info, NULL, &pipeline), path);
  free(words);
  return pipeline;
}

static void print_statistics(VkDevice device, VkPipeline pipeline) {
  PFN_vkGetPipelineExecutableStatisticsKHR get =
      (PFN_vkGetPipelineExecutableStatisticsKHR)vkGetDeviceProcAddr(device, "vkGetPipelineExecutableStatisticsKHR");
  VkPipelineExecutableInfoKHR executable = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                            .pipeline = pipeline};
  VkPipelineExecutableStatisticKHR found[MOST_STATISTICS];
  uint32_t count = MOST_STATISTICS;
  memset(found, 0, sizeof found);
  for (uint32_t i = 0; i < count; i++) found[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
  need(get(device, &executable, &count, found), "statistics");
  for (uint32_t i = 0; i < count; i++)
    if (found[i].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR)
      printf("\t%s=%llu", found[i].name, (unsigned long long)found[i].value.u64);
}

int main(int count, char **words) {
  VkDevice device = open_device();
  for (int i = 1; i + 2 < count; i += 3) {
    printf("%s", words[i]);
    print_statistics(device, compile(device, words[i], words[i + 1], words[i + 2]));
    printf("\n");
  }
  return 0;
}
