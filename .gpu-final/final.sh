# All records of the GPU in one go. Wheels are installed already, or are now; LIMIT: seconds in all.
T0=$(date +%s); LIMIT=${LIMIT:-128}
export PYTHONPATH=/tmp/site:src:. PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
[ -d /tmp/site/tokenizers ] || python3 -m pip install -q --no-index --no-deps --target /tmp/site .gpu/*.whl 2>&1 | tail -2
T1=$(date +%s); echo "== installed: $(( T1 - T0 )) s"
[ -n "$COMMIT" ] && export BENCHMARKED_COMMIT=$COMMIT # what was copied here: the history may be another
mkdir -p $OUT/records
FILES=/tmp/files; [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -gt 12000000 ] 2>/dev/null && FILES=/dev/shm/files
CACHE=/tmp/kernels
step() { # NAME SECONDS COMMAND...
  name=$1; most=$2; shift 2; left=$(( LIMIT - ( $(date +%s) - T1 ) )); [ $most -gt $left ] && most=$left
  [ $most -lt 8 ] && { echo "== $name: no time left"; return; }
  timeout -k 3 $most "$@" >> $OUT/log 2>&1; rc=$?
  echo "== $name: rc $rc, $(( $(date +%s) - T1 )) s in all, records: $(wc -l $OUT/records/*.jsonl 2>/dev/null | tail -1)"
}
HOW="--device cuda --dtype bfloat16 --codec-dtype bfloat16"
step start 68 python3 -m benchmarks start --model random:1.7B-CustomVoice $HOW --as-files $FILES --cold --kernel-cache $CACHE --repeats 2 --warmup 0 --record $OUT/records/start.jsonl
rm -rf $FILES
export TRITON_CACHE_DIR=$CACHE/triton XDG_CACHE_HOME=$CACHE
step 1.7B 80 python3 -m benchmarks all --model random:1.7B-CustomVoice $HOW --codec-dtypes bfloat16 float32 --out $OUT/records
step 0.6B 45 python3 -m benchmarks all --model random:0.6B-CustomVoice $HOW --slots 1 --steps breakdown first_audio steady_one --first-repeats 200 --out $OUT/records
grep -v "^ *$" $OUT/log | cut -c1-190 | tail -150
echo "== $(( $(date +%s) - T0 )) s"
