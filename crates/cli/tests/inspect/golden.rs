//! What `inspect` says of the captures: `BREAKBULK_BLESS=1` writes this anew.

/// Name, table, JSON.
pub(super) const GOLDEN: &[(&str, &str, &str)] = &[
    (
        "ahp",
        r#"
frames
  #  bytes  kind   key  seq  data  notes
  1    313  whole  -      -   313
  2    291  piece  g1   0/3   141
  3    291  piece  g1   1/3   141
  4    187  piece  g1   2/3    61

transfers
  key  frames  pieces  bytes  overhead  twice  digest  missing  state
  g1      2-4     3/3  343/-    124.2%      0  -       -        complete

messages
  #  frame  key  bytes  protocol  says
  1      1  -      313  ahp       request id=1 method=initialize channel=ahp-root:// client=c versions=1.0.0,0.9.0 subscriptions=1 chunking=yes maxFrame=900000 maxMessage=33554432 maxGroups=8 timeoutMs=30000 params=257B
  2      4  g1     343  ahp       notification method=action channel=ahp-session:/abc serverSeq=421 action=session/titleChanged params=298B

format: ahp, one frame per line, recognised by ahp/messageSegment in 3 of the first 4 frames
4 frames, 1 transfer (1 complete), 2 messages, 0 faults
"#,
        r#"
{"frames":[
{"bytes":313,"data":313,"fault":null,"key":null,"kind":"whole","note":null,"number":1,"seq":null,"total":null},
{"bytes":291,"data":141,"fault":null,"key":"g1","kind":"piece","note":null,"number":2,"seq":0,"total":3},
{"bytes":291,"data":141,"fault":null,"key":"g1","kind":"piece","note":null,"number":3,"seq":1,"total":3},
{"bytes":187,"data":61,"fault":null,"key":"g1","kind":"piece","note":null,"number":4,"seq":2,"total":3}],
"transfers":[
{"bytes":343,"declaredBytes":null,"declaredPieces":3,"digest":null,"duplicates":0,"fault":null,"frameBytes":769,"frames":[2,4],"gaps":[],"key":"g1","moreGaps":false,"overheadPercent":124.2,"pieces":3,"state":"complete"}],
"messages":[
{"bytes":313,"fault":null,"fields":{"channel":"ahp-root://","chunking":"yes","client":"c","id":"1","maxFrame":900000,"maxGroups":8,"maxMessage":33554432,"method":"initialize","params":257,"subscriptions":1,"timeoutMs":30000,"versions":"1.0.0,0.9.0"},"frame":1,"key":null,"kind":"request","number":1,"protocol":"ahp"},
{"bytes":343,"fault":null,"fields":{"action":"session/titleChanged","channel":"ahp-session:/abc","method":"action","params":298,"serverSeq":421},"frame":4,"key":"g1","kind":"notification","number":2,"protocol":"ahp"}],
"summary":{"complete":1,"failed":0,"faults":0,"form":"one frame per line","frames":4,"leftOut":{"frames":0,"messages":0,"transfers":0},"messages":2,"transfers":1,"unfinished":0,"why":"ahp/messageSegment in 3 of the first 4 frames","wire":"ahp"}}
"#,
    ),
    (
        "tywrap",
        r#"
frames
  #  bytes  kind   key        seq  data  notes
  1    273  piece  request:7  0/2   100
  2    220  piece  request:7  1/2    57
  3    100  whole  -            -   100

transfers
  key        frames  pieces    bytes  overhead  twice  digest  missing  state
  request:7     1-2     2/2  157/157    214.0%      0  -       -        complete

messages
  #  frame  key        bytes  protocol  says
  1      2  request:7    157  tywrap/1  call id=7 module=math function=sqrt args=54B kwargs=0B
  2      3  -            100  tywrap/1  error id=7 type=TypeError message="must be real number, not str"

format: tywrap, one frame per line, recognised by tywrap-frame/1 in 2 of the first 3 frames
3 frames, 1 transfer (1 complete), 2 messages, 0 faults
"#,
        r#"
{"frames":[
{"bytes":273,"data":100,"fault":null,"key":"request:7","kind":"piece","note":null,"number":1,"seq":0,"total":2},
{"bytes":220,"data":57,"fault":null,"key":"request:7","kind":"piece","note":null,"number":2,"seq":1,"total":2},
{"bytes":100,"data":100,"fault":null,"key":null,"kind":"whole","note":null,"number":3,"seq":null,"total":null}],
"transfers":[
{"bytes":157,"declaredBytes":157,"declaredPieces":2,"digest":null,"duplicates":0,"fault":null,"frameBytes":493,"frames":[1,2],"gaps":[],"key":"request:7","moreGaps":false,"overheadPercent":214.01,"pieces":2,"state":"complete"}],
"messages":[
{"bytes":157,"fault":null,"fields":{"args":54,"function":"sqrt","id":7,"kwargs":0,"module":"math"},"frame":2,"key":"request:7","kind":"call","number":1,"protocol":"tywrap/1"},
{"bytes":100,"fault":null,"fields":{"id":7,"message":"must be real number, not str","type":"TypeError"},"frame":3,"key":null,"kind":"error","number":2,"protocol":"tywrap/1"}],
"summary":{"complete":1,"failed":0,"faults":0,"form":"one frame per line","frames":3,"leftOut":{"frames":0,"messages":0,"transfers":0},"messages":2,"transfers":1,"unfinished":0,"why":"tywrap-frame/1 in 2 of the first 3 frames","wire":"tywrap"}}
"#,
    ),
    (
        "cep22",
        r#"
frames
  #  bytes  kind   key  seq  data  notes
  1    335  open   tok  1/2     -
  2    396  piece  tok    2   212
  3    382  piece  tok    3   212
  4    191  close  tok    4     -
  5    118  whole  -      -   118

transfers
  key  frames  pieces    bytes  overhead  twice  digest  missing  state
  tok     1-4     2/2  424/424    207.5%      0  ok      -        complete

messages
  #  frame  key  bytes  protocol  says
  1      4  tok    424  mcp       request id=3 method=tools/call name=echo token="tok" params=368B
  2      5  -      118  mcp       notification method=notifications/progress token="tok" progress=9 message="half way" params=57B

format: cep22, one frame per line, recognised by oversized-transfer progress in 4 of the first 5 frames
5 frames, 1 transfer (1 complete), 2 messages, 0 faults
"#,
        r#"
{"frames":[
{"bytes":335,"data":null,"fault":null,"key":"tok","kind":"open","note":null,"number":1,"seq":1,"total":2},
{"bytes":396,"data":212,"fault":null,"key":"tok","kind":"piece","note":null,"number":2,"seq":2,"total":null},
{"bytes":382,"data":212,"fault":null,"key":"tok","kind":"piece","note":null,"number":3,"seq":3,"total":null},
{"bytes":191,"data":null,"fault":null,"key":"tok","kind":"close","note":null,"number":4,"seq":4,"total":null},
{"bytes":118,"data":118,"fault":null,"key":null,"kind":"whole","note":null,"number":5,"seq":null,"total":null}],
"transfers":[
{"bytes":424,"declaredBytes":424,"declaredPieces":2,"digest":true,"duplicates":0,"fault":null,"frameBytes":1304,"frames":[1,4],"gaps":[],"key":"tok","moreGaps":false,"overheadPercent":207.55,"pieces":2,"state":"complete"}],
"messages":[
{"bytes":424,"fault":null,"fields":{"id":"3","method":"tools/call","name":"echo","params":368,"token":"\"tok\""},"frame":4,"key":"tok","kind":"request","number":1,"protocol":"mcp"},
{"bytes":118,"fault":null,"fields":{"message":"half way","method":"notifications/progress","params":57,"progress":"9","token":"\"tok\""},"frame":5,"key":null,"kind":"notification","number":2,"protocol":"mcp"}],
"summary":{"complete":1,"failed":0,"faults":0,"form":"one frame per line","frames":5,"leftOut":{"frames":0,"messages":0,"transfers":0},"messages":2,"transfers":1,"unfinished":0,"why":"oversized-transfer progress in 4 of the first 5 frames","wire":"cep22"}}
"#,
    ),
    (
        "loro",
        r#"
frames
  #  bytes  kind   key               seq  data  notes
  1     17  open   00000000000000ff  -/3     -
  2     80  piece  00000000000000ff  0/3    67
  3     80  piece  00000000000000ff  1/3    67
  4     16  piece  00000000000000ff  2/3     3
  5     20  whole  -                   -    19

transfers
  key               frames  pieces    bytes  overhead  twice  digest  missing  state
  00000000000000ff     1-4     3/3  137/137     40.9%      0  -       -        complete

messages
  #  frame  key               bytes  protocol  says
  1      4  00000000000000ff    137  loro      update doc=notes transmission=snapshot data=100B versionPeers=1
  2      5  -                    19  loro      delete-request doc=old

format: loro, length-prefixed transport payloads, recognised by loro fragments in 4 of the first 5 frames
5 frames, 1 transfer (1 complete), 2 messages, 0 faults
"#,
        r#"
{"frames":[
{"bytes":17,"data":null,"fault":null,"key":"00000000000000ff","kind":"open","note":null,"number":1,"seq":null,"total":3},
{"bytes":80,"data":67,"fault":null,"key":"00000000000000ff","kind":"piece","note":null,"number":2,"seq":0,"total":3},
{"bytes":80,"data":67,"fault":null,"key":"00000000000000ff","kind":"piece","note":null,"number":3,"seq":1,"total":3},
{"bytes":16,"data":3,"fault":null,"key":"00000000000000ff","kind":"piece","note":null,"number":4,"seq":2,"total":3},
{"bytes":20,"data":19,"fault":null,"key":null,"kind":"whole","note":null,"number":5,"seq":null,"total":null}],
"transfers":[
{"bytes":137,"declaredBytes":137,"declaredPieces":3,"digest":null,"duplicates":0,"fault":null,"frameBytes":193,"frames":[1,4],"gaps":[],"key":"00000000000000ff","moreGaps":false,"overheadPercent":40.88,"pieces":3,"state":"complete"}],
"messages":[
{"bytes":137,"fault":null,"fields":{"data":100,"doc":"notes","transmission":"snapshot","versionPeers":1},"frame":4,"key":"00000000000000ff","kind":"update","number":1,"protocol":"loro"},
{"bytes":19,"fault":null,"fields":{"doc":"old"},"frame":5,"key":null,"kind":"delete-request","number":2,"protocol":"loro"}],
"summary":{"complete":1,"failed":0,"faults":0,"form":"length-prefixed transport payloads","frames":5,"leftOut":{"frames":0,"messages":0,"transfers":0},"messages":2,"transfers":1,"unfinished":0,"why":"loro fragments in 4 of the first 5 frames","wire":"loro"}}
"#,
    ),
    (
        "loro, JSON",
        r#"
frames
  #  bytes  kind     key  seq  data  notes
  1      5  control  -      -     -  ready
  2    240  whole    -      -   240

messages
  #  frame  key  bytes  protocol  says
  1      2  -      240  loro      update doc=notes transmission=snapshot data=100B versionPeers=1

format: loro, JSON form, one message per line, recognised by channel messages in 1 of the first 2 frames
2 frames, 0 transfers, 1 message, 0 faults
"#,
        r#"
{"frames":[
{"bytes":5,"data":null,"fault":null,"key":null,"kind":"control","note":"ready","number":1,"seq":null,"total":null},
{"bytes":240,"data":240,"fault":null,"key":null,"kind":"whole","note":null,"number":2,"seq":null,"total":null}],
"transfers":[],
"messages":[
{"bytes":240,"fault":null,"fields":{"data":100,"doc":"notes","transmission":"snapshot","versionPeers":1},"frame":2,"key":null,"kind":"update","number":1,"protocol":"loro"}],
"summary":{"complete":0,"failed":0,"faults":0,"form":"JSON form, one message per line","frames":2,"leftOut":{"frames":0,"messages":0,"transfers":0},"messages":1,"transfers":0,"unfinished":0,"why":"channel messages in 1 of the first 2 frames","wire":"loro"}}
"#,
    ),
    (
        "loro, bare",
        r#"
frames
  #  bytes  kind   key  seq  data  notes
  1    137  whole  -      -   137

messages
  #  frame  key  bytes  protocol  says
  1      1  -      137  loro      update doc=notes transmission=snapshot data=100B versionPeers=1

format: loro, length-prefixed bare frames, recognised by loro frames in 1 of the first 1 frames
1 frame, 0 transfers, 1 message, 0 faults
"#,
        r#"
{"frames":[
{"bytes":137,"data":137,"fault":null,"key":null,"kind":"whole","note":null,"number":1,"seq":null,"total":null}],
"transfers":[],
"messages":[
{"bytes":137,"fault":null,"fields":{"data":100,"doc":"notes","transmission":"snapshot","versionPeers":1},"frame":1,"key":null,"kind":"update","number":1,"protocol":"loro"}],
"summary":{"complete":0,"failed":0,"faults":0,"form":"length-prefixed bare frames","frames":1,"leftOut":{"frames":0,"messages":0,"transfers":0},"messages":1,"transfers":0,"unfinished":0,"why":"loro frames in 1 of the first 1 frames","wire":"loro"}}
"#,
    ),
    (
        "vscode",
        r#"
frames
  #  bytes  kind   key  seq  data  notes
  1     84  whole  -      -    84
  2     26  whole  -      -    26
  3      5  whole  -      -     5
  4      5  whole  -      -     5
  5     78  whole  -      -    78

messages
  #  frame  key  bytes  protocol  says
  1      1  -       84  vscode    request req=1 rpcId=2 method=$write args="mixed[buffer 64B, undefined]"
  2      2  -       26  vscode    request req=1 rpcId=2 method=$log args="json[int 1B, string 7B]"
  3      3  -        5  vscode    ack req=1
  4      4  -        5  vscode    reply ok req=1 result=undefined
  5      5  -       78  vscode    reply error req=1 json=69B name=Error message=nope

format: vscode, length-prefixed RPC messages, recognised by VSCode RPC messages in 5 of the first 5 frames
5 frames, 0 transfers, 5 messages, 0 faults
"#,
        r#"
{"frames":[
{"bytes":84,"data":84,"fault":null,"key":null,"kind":"whole","note":null,"number":1,"seq":null,"total":null},
{"bytes":26,"data":26,"fault":null,"key":null,"kind":"whole","note":null,"number":2,"seq":null,"total":null},
{"bytes":5,"data":5,"fault":null,"key":null,"kind":"whole","note":null,"number":3,"seq":null,"total":null},
{"bytes":5,"data":5,"fault":null,"key":null,"kind":"whole","note":null,"number":4,"seq":null,"total":null},
{"bytes":78,"data":78,"fault":null,"key":null,"kind":"whole","note":null,"number":5,"seq":null,"total":null}],
"transfers":[],
"messages":[
{"bytes":84,"fault":null,"fields":{"args":"mixed[buffer 64B, undefined]","method":"$write","req":1,"rpcId":2},"frame":1,"key":null,"kind":"request","number":1,"protocol":"vscode"},
{"bytes":26,"fault":null,"fields":{"args":"json[int 1B, string 7B]","method":"$log","req":1,"rpcId":2},"frame":2,"key":null,"kind":"request","number":2,"protocol":"vscode"},
{"bytes":5,"fault":null,"fields":{"req":1},"frame":3,"key":null,"kind":"ack","number":3,"protocol":"vscode"},
{"bytes":5,"fault":null,"fields":{"req":1,"result":"undefined"},"frame":4,"key":null,"kind":"reply ok","number":4,"protocol":"vscode"},
{"bytes":78,"fault":null,"fields":{"json":69,"message":"nope","name":"Error","req":1},"frame":5,"key":null,"kind":"reply error","number":5,"protocol":"vscode"}],
"summary":{"complete":0,"failed":0,"faults":0,"form":"length-prefixed RPC messages","frames":5,"leftOut":{"frames":0,"messages":0,"transfers":0},"messages":5,"transfers":0,"unfinished":0,"why":"VSCode RPC messages in 5 of the first 5 frames","wire":"vscode"}}
"#,
    ),
    (
        "ipc.net",
        r#"
frames
  #  bytes  kind     key  seq  data  notes
  1     14  whole    -      -     1  Regular id=1 ack=3 length=1
  2     39  whole    -      -    26  Regular id=2 ack=3 length=26
  3     13  control  -      -     0  KeepAlive id=0 ack=3 length=0
  4     18  whole    -      -     5  Regular id=3 ack=3 length=5
  5     39  whole    -      -    26  Regular id=2 ack=3 length=26; ignored: a duplicate

messages
  #  frame  key  bytes  protocol  says
  1      1  -        1  vscode    ready
  2      2  -       26  vscode    request req=1 rpcId=2 method=$log args="json[int 1B, string 7B]"
  3      4  -        5  vscode    ack req=1

format: vscode, raw ipc.net stream, recognised by ipc.net headers in 5 of the first 5 frames
5 frames, 0 transfers, 3 messages, 0 faults
"#,
        r#"
{"frames":[
{"bytes":14,"data":1,"fault":null,"key":null,"kind":"whole","note":"Regular id=1 ack=3 length=1","number":1,"seq":null,"total":null},
{"bytes":39,"data":26,"fault":null,"key":null,"kind":"whole","note":"Regular id=2 ack=3 length=26","number":2,"seq":null,"total":null},
{"bytes":13,"data":0,"fault":null,"key":null,"kind":"control","note":"KeepAlive id=0 ack=3 length=0","number":3,"seq":null,"total":null},
{"bytes":18,"data":5,"fault":null,"key":null,"kind":"whole","note":"Regular id=3 ack=3 length=5","number":4,"seq":null,"total":null},
{"bytes":39,"data":26,"fault":null,"key":null,"kind":"whole","note":"Regular id=2 ack=3 length=26; ignored: a duplicate","number":5,"seq":null,"total":null}],
"transfers":[],
"messages":[
{"bytes":1,"fault":null,"fields":{},"frame":1,"key":null,"kind":"ready","number":1,"protocol":"vscode"},
{"bytes":26,"fault":null,"fields":{"args":"json[int 1B, string 7B]","method":"$log","req":1,"rpcId":2},"frame":2,"key":null,"kind":"request","number":2,"protocol":"vscode"},
{"bytes":5,"fault":null,"fields":{"req":1},"frame":4,"key":null,"kind":"ack","number":3,"protocol":"vscode"}],
"summary":{"complete":0,"failed":0,"faults":0,"form":"raw ipc.net stream","frames":5,"leftOut":{"frames":0,"messages":0,"transfers":0},"messages":3,"transfers":0,"unfinished":0,"why":"ipc.net headers in 5 of the first 5 frames","wire":"vscode"}}
"#,
    ),
    (
        "json-rpc",
        r#"
frames
  #  bytes  kind   key  seq  data  notes
  1     44  whole  -      -    44
  2     38  whole  -      -    38

messages
  #  frame  key  bytes  protocol  says
  1      1  -       44  json-rpc  request id=1 method=shutdown
  2      2  -       38  json-rpc  result id=1 result=4B

format: jsonrpc, one frame per line, recognised by JSON-RPC in 2 of the first 2 frames
2 frames, 0 transfers, 2 messages, 0 faults
"#,
        r#"
{"frames":[
{"bytes":44,"data":44,"fault":null,"key":null,"kind":"whole","note":null,"number":1,"seq":null,"total":null},
{"bytes":38,"data":38,"fault":null,"key":null,"kind":"whole","note":null,"number":2,"seq":null,"total":null}],
"transfers":[],
"messages":[
{"bytes":44,"fault":null,"fields":{"id":"1","method":"shutdown"},"frame":1,"key":null,"kind":"request","number":1,"protocol":"json-rpc"},
{"bytes":38,"fault":null,"fields":{"id":"1","result":4},"frame":2,"key":null,"kind":"result","number":2,"protocol":"json-rpc"}],
"summary":{"complete":0,"failed":0,"faults":0,"form":"one frame per line","frames":2,"leftOut":{"frames":0,"messages":0,"transfers":0},"messages":2,"transfers":0,"unfinished":0,"why":"JSON-RPC in 2 of the first 2 frames","wire":"jsonrpc"}}
"#,
    ),
];
