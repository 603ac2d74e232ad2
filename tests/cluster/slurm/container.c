/* Rehearses pyxis: takes its options and runs a step's task in a prepared root, with folders mounted in it. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(clusterdyno_container, 1)

enum { IMAGE, MOUNTS, WORKDIR, NAME, OPTIONS };
static char given[OPTIONS][4096];

static int take(int which, const char *text, int remote) {
  snprintf(given[which], sizeof given[which], "%s", text ? text : "");
  return ESPANK_SUCCESS;
}

static struct spank_option options[] = {
    {"container-image", "PATH", "image", 1, IMAGE, take},
    {"container-mounts", "SRC:DST", "mounts", 1, MOUNTS, take},
    {"container-workdir", "PATH", "working directory", 1, WORKDIR, take},
    {"container-name", "NAME", "name", 1, NAME, take},
};

int slurm_spank_init(spank_t spank, int count, char **words) {
  for (int i = 0; i < OPTIONS; i++)
    if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) return -1;
  return 0;
}

static int make_folders(char *path) {
  for (char *at = path + 1; (at = strchr(at, '/')); *at++ = '/') {
    *at = 0;
    mkdir(path, 0755);
  }
  return mkdir(path, 0755);
}

int slurm_spank_task_init_privileged(spank_t spank, int count, char **words) {
  char target[8192];
  if (!given[IMAGE][0]) return 0;
  if (access(given[IMAGE], F_OK)) {
    slurm_error("no image %s", given[IMAGE]);
    return -1;
  }
  if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return -1;
  for (char *one = strtok(given[MOUNTS], ","); one; one = strtok(NULL, ",")) {
    char *inside = strchr(one, ':');
    *inside++ = 0;
    snprintf(target, sizeof target, "%s%s", given[IMAGE], inside);
    make_folders(target);
    if (mount(one, target, NULL, MS_BIND | MS_REC, NULL)) {
      slurm_error("cannot mount %s", one);
      return -1;
    }
  }
  return chroot(given[IMAGE]) || chdir("/") ? -1 : 0;
}

int slurm_spank_task_init(spank_t spank, int count, char **words) {
  return given[IMAGE][0] ? chdir(given[WORKDIR]) : 0;
}
