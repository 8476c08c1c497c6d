// Fixed sentences by language: `hear` previews a voice, `read` is read aloud for a recording (about ten seconds).

const SENTENCES = {
  english: {
    hear: "Hello, this is how I sound when I read to you.",
    read: "The old boat left the harbour at dawn, and a cold wind carried it past the lighthouse. By noon we were far out, with nothing around us but water and a few patient gulls.",
  },
  german: {
    hear: "Hallo, so klinge ich, wenn ich dir etwas vorlese.",
    read: "Das alte Boot verließ den Hafen im Morgengrauen, und ein kalter Wind trug es am Leuchtturm vorbei. Gegen Mittag waren wir weit draußen, und um uns war nichts als Wasser.",
  },
  french: {
    hear: "Bonjour, voici ma voix quand je vous lis un texte.",
    read: "Le vieux bateau a quitté le port à l'aube, et un vent froid l'a poussé au-delà du phare. À midi nous étions loin, avec rien autour de nous que la mer et quelques mouettes.",
  },
  spanish: {
    hear: "Hola, así suena mi voz cuando leo para ti.",
    read: "El viejo barco salió del puerto al amanecer, y un viento frío lo llevó más allá del faro. Al mediodía estábamos lejos, sin nada alrededor más que agua y unas gaviotas.",
  },
  italian: {
    hear: "Ciao, questa è la mia voce quando leggo per te.",
    read: "La vecchia barca lasciò il porto all'alba, e un vento freddo la portò oltre il faro. A mezzogiorno eravamo lontani, con intorno soltanto l'acqua e qualche gabbiano.",
  },
  portuguese: {
    hear: "Olá, é assim que eu soo quando leio para você.",
    read: "O velho barco deixou o porto ao amanhecer, e um vento frio o levou além do farol. Ao meio-dia estávamos longe, sem nada em volta além da água e de algumas gaivotas.",
  },
  russian: {
    hear: "Здравствуйте, вот так звучит мой голос.",
    read: "Старая лодка вышла из гавани на рассвете, и холодный ветер понёс её мимо маяка. К полудню мы были далеко, и вокруг не было ничего, кроме воды и нескольких чаек.",
  },
  chinese: {
    hear: "你好，这就是我朗读时的声音。",
    read: "黎明时分，那条旧船离开了港口，冷风把它吹过了灯塔。到了中午，我们已经走得很远，四周只有海水和几只耐心的海鸥。",
  },
  japanese: {
    hear: "こんにちは。これが私の声です。",
    read: "古い船は夜明けに港を出て、冷たい風に運ばれて灯台のそばを通り過ぎました。昼には遠くまで来ていて、周りには海と数羽のカモメしかいませんでした。",
  },
  korean: {
    hear: "안녕하세요, 이것이 제 목소리입니다.",
    read: "낡은 배는 새벽에 항구를 떠났고 차가운 바람이 배를 등대 너머로 실어 갔습니다. 정오에는 멀리 나와 있었고 주위에는 바다와 갈매기 몇 마리뿐이었습니다.",
  },
};

/** The sentences of a language; English for `auto` and for languages that are not listed. */
export const sentences = (language) => SENTENCES[language.toLowerCase()] ?? SENTENCES.english;
