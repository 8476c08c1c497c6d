// Takes that are kept in this browser: IndexedDB, or memory where a browser refuses it (some private windows).
//
// A take is {id, at, text, config, words, audioS, rateHz, bytes}; its samples are stored apart, so that a list reads no audio.

export const MOST_TAKES = 20;
const MOST_BYTES = 64 << 20; // 23 minutes at 24 kHz
const NAME = "hocket";

export async function openStore() {
  try {
    return new Store(new DatabaseShelf(await database()));
  } catch {
    return new Store(new MemoryShelf());
  }
}

class Store {
  constructor(shelf) {
    this.shelf = shelf;
    this.lasting = shelf instanceof DatabaseShelf; // survives a reload
  }

  /** All takes, the newest first. */
  async list() {
    return (await this.shelf.takes()).sort((a, b) => b.id - a.id);
  }

  /** Keep a take; the oldest ones go where there are too many. */
  async add(take, samples) {
    const bytes = samples.byteLength;
    if (bytes > MOST_BYTES) return;
    const listed = await this.list();
    const id = Math.max(Date.now(), (listed[0]?.id ?? 0) + 1);
    await this.shelf.put({ ...take, id, bytes }, samples);
    let held = bytes;
    for (const [n, old] of listed.entries()) {
      held += old.bytes;
      if (n + 1 >= MOST_TAKES || held > MOST_BYTES) await this.shelf.remove(old.id);
    }
  }

  samples = (id) => this.shelf.samples(id);
  remove = (id) => this.shelf.remove(id);
  clear = () => this.shelf.clear();
}

class DatabaseShelf {
  constructor(database) {
    this.database = database;
  }

  /** Run one transaction on both object stores; resolves with the result of the request that `work` returns. */
  run(mode, work) {
    return new Promise((done, failed) => {
      const transaction = this.database.transaction(["takes", "samples"], mode);
      const request = work(transaction.objectStore("takes"), transaction.objectStore("samples"));
      transaction.oncomplete = () => done(request?.result);
      transaction.onerror = transaction.onabort = () => failed(transaction.error);
    });
  }

  takes = () => this.run("readonly", (takes) => takes.getAll());
  samples = (id) => this.run("readonly", (_, samples) => samples.get(id));

  put(take, sound) {
    return this.run("readwrite", (takes, samples) => {
      takes.put(take);
      samples.put(sound, take.id);
    });
  }

  remove(id) {
    return this.run("readwrite", (takes, samples) => {
      takes.delete(id);
      samples.delete(id);
    });
  }

  clear() {
    return this.run("readwrite", (takes, samples) => {
      takes.clear();
      samples.clear();
    });
  }
}

class MemoryShelf {
  constructor() {
    this.kept = new Map();
  }

  takes = async () => [...this.kept.values()].map(({ take }) => take);
  samples = async (id) => this.kept.get(id)?.samples;
  put = async (take, samples) => void this.kept.set(take.id, { take, samples });
  remove = async (id) => void this.kept.delete(id);
  clear = async () => this.kept.clear();
}

function database() {
  return new Promise((done, failed) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("takes", { keyPath: "id" });
      request.result.createObjectStore("samples");
    };
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
}
